//! The searched area: circles, boxes and polygons, and the cells of the grid that cover it.

use super::cell::{Area, CellPlace, GeoCell, STEP_MAX};

/// An area to search, in meters.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum GeoShape {
    /// Up to this distance from the center.
    Circle { radius: f64 },
    /// This wide and high, around the center.
    Box { width: f64, height: f64 },
    /// Within these corners; there are at least three.
    Polygon { corners: Vec<CellPlace> },
}

/// The mean radius of WGS-84, meters.
const EARTH_RADIUS: f64 = 6_372_797.560856;
/// Half the way around the equator as Web Mercator has it, meters.
const MERCATOR_MAX: f64 = 20_037_726.37;

/// Meters between two places along a great circle.
pub(super) fn distance(a: CellPlace, b: CellPlace) -> f64 {
    let v = ((radians(b.longitude) - radians(a.longitude)) / 2.0).sin();
    if v == 0.0 {
        return north_south_distance(a, b);
    }
    let (from, to) = (radians(a.latitude), radians(b.latitude));
    let u = ((to - from) / 2.0).sin();
    let square = u * u + from.cos() * to.cos() * v * v;
    2.0 * EARTH_RADIUS * square.sqrt().asin()
}

fn north_south_distance(a: CellPlace, b: CellPlace) -> f64 {
    EARTH_RADIUS * (radians(b.latitude) - radians(a.latitude)).abs()
}

impl GeoShape {
    /// Distance of a place in the shape from its center; `None` for a place outside.
    pub fn distance_within(&self, center: CellPlace, place: CellPlace) -> Option<f64> {
        match self {
            GeoShape::Circle { radius } => Some(distance(center, place)).filter(|meters| meters <= radius),
            GeoShape::Box { width, height } => {
                // The first check is the cheap one.
                if north_south_distance(place, center) > height / 2.0 {
                    return None;
                }
                let beside = CellPlace { longitude: center.longitude, ..place };
                (distance(place, beside) <= width / 2.0).then(|| distance(center, place))
            }
            GeoShape::Polygon { corners } => is_within(corners, place).then(|| distance(center, place)),
        }
    }

    /// The cells that cover the shape, in the order they are searched.
    pub fn cells(&self, center: CellPlace) -> Vec<GeoCell> {
        let bounds = self.bounds(center);
        let mut step = step_for(self.reach(center), center.latitude);
        let mut cell = GeoCell::of(center, step);
        if step > 1 && neighbors_fall_short(cell, bounds) {
            step -= 1;
            cell = GeoCell::of(center, step);
        }
        let own = cell.area();
        // At the coarsest step the neighbors meet behind the earth.
        let may_leave_out = step >= 2;
        let mut cells = vec![cell];
        for (east, north) in AROUND {
            let is_needless = (north < 0 && own.south < bounds.south)
                || (north > 0 && own.north > bounds.north)
                || (east < 0 && own.west < bounds.west)
                || (east > 0 && own.east > bounds.east);
            let neighbor = cell.neighbor(east, north);
            let is_left_out = (may_leave_out && is_needless) || cells.contains(&neighbor);
            if !is_left_out {
                cells.push(neighbor);
            }
        }
        cells
    }

    /// Meters from the center to the farthest place.
    fn reach(&self, center: CellPlace) -> f64 {
        match self {
            GeoShape::Circle { radius } => *radius,
            GeoShape::Box { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
            GeoShape::Polygon { corners } => {
                corners.iter().map(|&corner| distance(center, corner)).fold(0.0, f64::max)
            }
        }
    }

    /// The degrees it lies between.
    fn bounds(&self, center: CellPlace) -> Area {
        let (width, height) = match self {
            GeoShape::Circle { radius } => (*radius, *radius),
            GeoShape::Box { width, height } => (width / 2.0, height / 2.0),
            GeoShape::Polygon { corners } => return bounds_of(corners, center),
        };
        let up = degrees(height / EARTH_RADIUS);
        // Meridians are closest on the side of the pole, so the width takes most degrees there.
        let widest = if center.latitude < 0.0 { center.latitude - up } else { center.latitude + up };
        let aside = degrees(width / EARTH_RADIUS / radians(widest).cos());
        Area {
            west: center.longitude - aside,
            east: center.longitude + aside,
            south: center.latitude - up,
            north: center.latitude + up,
        }
    }
}

/// Neighbors as steps to the east and north, in search order.
const AROUND: [(i32, i32); 8] = [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];

/// The finest step whose cells are not smaller than the way searched.
fn step_for(meters: f64, latitude: f64) -> u32 {
    if meters == 0.0 {
        return STEP_MAX;
    }
    let (mut step, mut reached) = (1_i32, meters);
    while reached < MERCATOR_MAX {
        reached *= 2.0;
        step += 1;
    }
    step -= 2;
    // Toward the poles cells become narrow.
    step -= i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    step.clamp(1, STEP_MAX as i32).unsigned_abs()
}

fn neighbors_fall_short(cell: GeoCell, bounds: Area) -> bool {
    cell.neighbor(0, 1).area().north < bounds.north
        || cell.neighbor(0, -1).area().south > bounds.south
        || cell.neighbor(1, 0).area().east < bounds.east
        || cell.neighbor(-1, 0).area().west > bounds.west
}

/// The middle of a polygon's corners: the direction of the mean of the vectors to them from the center of the earth.
pub(super) fn middle(corners: &[CellPlace]) -> CellPlace {
    let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
    for corner in corners {
        let (longitude, latitude) = (radians(corner.longitude), radians(corner.latitude));
        x += latitude.cos() * longitude.cos();
        y += latitude.cos() * longitude.sin();
        z += latitude.sin();
    }
    CellPlace { longitude: degrees(f64::atan2(y, x)), latitude: degrees(f64::atan2(z, f64::hypot(x, y))) }
}

fn bounds_of(corners: &[CellPlace], center: CellPlace) -> Area {
    let start = Area {
        west: center.longitude,
        east: center.longitude,
        south: center.latitude,
        north: center.latitude,
    };
    corners.iter().fold(start, |area, corner| Area {
        west: area.west.min(corner.longitude),
        east: area.east.max(corner.longitude),
        south: area.south.min(corner.latitude),
        north: area.north.max(corner.latitude),
    })
}

/// Returns true if a ray from the place to the east crosses an odd number of edges.
fn is_within(corners: &[CellPlace], place: CellPlace) -> bool {
    let Some(&(mut from)) = corners.last() else { return false };
    let mut is_inside = false;
    for &to in corners {
        if (to.latitude > place.latitude) != (from.latitude > place.latitude) {
            let part = (place.latitude - to.latitude) / (from.latitude - to.latitude);
            is_inside ^= place.longitude < to.longitude + part * (from.longitude - to.longitude);
        }
        from = to;
    }
    is_inside
}

fn radians(degrees: f64) -> f64 {
    degrees * (std::f64::consts::PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (std::f64::consts::PI / 180.0)
}
