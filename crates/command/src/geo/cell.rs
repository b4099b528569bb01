//! The grid: places as numbers whose leading bits name ever smaller cells.

/// A place in degrees.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct CellPlace {
    pub longitude: f64,
    pub latitude: f64,
}

/// A cell of the grid: 2^step columns and as many rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GeoCell {
    // Column and row with alternating bits: rows in the even bits. bits < 2^(2 * step), except on the last edges
    bits: u64,
    // 1..=STEP_MAX
    step: u32,
}

/// The edges of a cell in degrees.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Area {
    pub west: f64,
    pub east: f64,
    pub south: f64,
    pub north: f64,
}

/// Bits of a score's column, and of its row.
pub(super) const STEP_MAX: u32 = 26;

/// The part of the earth that is indexed, after Web Mercator: without the poles.
const WORLD: Area = Area { west: -180.0, east: 180.0, south: LATITUDE_MIN, north: LATITUDE_MAX };
const LATITUDE_MAX: f64 = 85.051_128_78;
const LATITUDE_MIN: f64 = -LATITUDE_MAX;
/// The area that standard geohashes divide.
const WHOLE_EARTH: Area = Area { west: -180.0, east: 180.0, south: -90.0, north: 90.0 };

impl CellPlace {
    /// Returns true if the place is within the grid.
    pub fn is_indexable(self) -> bool {
        (WORLD.west..=WORLD.east).contains(&self.longitude)
            && (WORLD.south..=WORLD.north).contains(&self.latitude)
    }

    /// The score of a member here, a whole number.
    pub fn score(self) -> f64 {
        GeoCell::of(self, STEP_MAX).bits as f64
    }

    /// The middle of the cell that a score names. Any number is a score.
    pub fn of_score(score: f64) -> CellPlace {
        let bits = truncated(score);
        let Area { west, east, south, north } = GeoCell { bits, step: STEP_MAX }.area();
        CellPlace {
            longitude: ((west + east) / 2.0).clamp(WORLD.west, WORLD.east),
            latitude: ((south + north) / 2.0).clamp(WORLD.south, WORLD.north),
        }
    }

    /// The standard geohash, of eleven letters; the last one is always `0`, as 52 bits fill ten.
    pub fn geohash(self) -> [u8; 11] {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = GeoCell::within(WHOLE_EARTH, self, STEP_MAX).bits;
        let mut text = [b'0'; 11];
        for (at, letter) in text.iter_mut().take(10).enumerate() {
            let shift = 52 - 5 * (at as u32 + 1);
            *letter = LETTERS[(bits >> shift & 31) as usize];
        }
        text
    }
}

impl GeoCell {
    /// The cell of a place.
    pub fn of(place: CellPlace, step: u32) -> GeoCell {
        GeoCell::within(WORLD, place, step)
    }

    fn within(world: Area, place: CellPlace, step: u32) -> GeoCell {
        let cells = (1_u64 << step) as f64;
        let row = (place.latitude - world.south) / (world.north - world.south) * cells;
        let column = (place.longitude - world.west) / (world.east - world.west) * cells;
        GeoCell { bits: spread(row as u32) | spread(column as u32) << 1, step }
    }

    /// The edges.
    pub fn area(self) -> Area {
        let cells = (1_u64 << self.step) as f64;
        let (row, column) = (gather(self.bits), gather(self.bits >> 1));
        let (height, width) = (WORLD.north - WORLD.south, WORLD.east - WORLD.west);
        let latitude = |row: u32| WORLD.south + f64::from(row) / cells * height;
        let longitude = |column: u32| WORLD.west + f64::from(column) / cells * width;
        Area {
            west: longitude(column),
            east: longitude(column.wrapping_add(1)),
            south: latitude(row),
            north: latitude(row.wrapping_add(1)),
        }
    }

    /// The cell this many columns to the east and rows to the north, around the edges of the world.
    pub fn neighbor(self, east: i32, north: i32) -> GeoCell {
        let mask = u32::MAX >> (32 - self.step);
        // An unmoved index keeps its number, even one past the end, which a place on the last edge has.
        let moved = |index: u32, by: i32| if by == 0 { index } else { index.wrapping_add_signed(by) & mask };
        let (row, column) = (moved(gather(self.bits), north), moved(gather(self.bits >> 1), east));
        GeoCell { bits: spread(row) | spread(column) << 1, ..self }
    }

    /// The scores of the places in the cell: from the first to before the second.
    pub fn scores(self) -> (f64, f64) {
        let shift = 2 * (STEP_MAX - self.step);
        ((self.bits << shift) as f64, ((self.bits + 1) << shift) as f64)
    }
}

/// A score as an unsigned integer. Scores out of range give the result of Redis' compiler on x86-64.
fn truncated(score: f64) -> u64 {
    // 2^63
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let signed = |value: f64| if (-LIMIT..LIMIT).contains(&value) { value as i64 } else { i64::MIN } as u64;
    if score < LIMIT { signed(score) } else { signed(score - LIMIT) ^ 1 << 63 }
}

/// Puts a zero bit above each bit.
fn spread(value: u32) -> u64 {
    let mut bits = u64::from(value);
    for (shift, mask) in SPREADS {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// The even bits of a number, together.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & EVEN;
    for (shift, mask) in GATHERS {
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

const EVEN: u64 = 0x5555_5555_5555_5555;
const SPREADS: [(u32, u64); 5] = [
    (16, 0x0000_FFFF_0000_FFFF),
    (8, 0x00FF_00FF_00FF_00FF),
    (4, 0x0F0F_0F0F_0F0F_0F0F),
    (2, 0x3333_3333_3333_3333),
    (1, EVEN),
];
const GATHERS: [(u32, u64); 5] = [
    (1, 0x3333_3333_3333_3333),
    (2, 0x0F0F_0F0F_0F0F_0F0F),
    (4, 0x00FF_00FF_00FF_00FF),
    (8, 0x0000_FFFF_0000_FFFF),
    (16, 0x0000_0000_FFFF_FFFF),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_spread_and_gather() {
        for value in [0, 1, 2, 0xFFFF_FFFF, 0xDEAD_BEEF, 1 << 31] {
            assert_eq!(gather(spread(value)), value);
            assert_eq!(spread(value) & !EVEN, 0);
        }
    }

    #[test]
    fn places_have_the_scores_of_redis() {
        let palermo = CellPlace { longitude: 13.361389, latitude: 38.115556 };
        assert_eq!(palermo.score(), 3479099956230698.0);
        assert_eq!(&palermo.geohash(), b"sqc8b49rny0");
        let again = CellPlace::of_score(palermo.score());
        assert!((again.longitude - palermo.longitude).abs() < 1e-5);
        assert_eq!(again.score(), palermo.score());
    }

    #[test]
    fn neighbors_wrap_and_scores_cover_the_cell() {
        let cell = GeoCell::of(CellPlace { longitude: 179.999, latitude: 0.0 }, 8);
        assert!(cell.neighbor(1, 0).area().west == WORLD.west);
        assert_eq!(cell.neighbor(1, 1).neighbor(-1, -1), cell);
        let (from, to) = cell.scores();
        assert!((from..to).contains(&CellPlace { longitude: 179.999, latitude: 0.0 }.score()));
    }

    #[test]
    fn any_number_is_a_score() {
        for score in [-1.0, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300, 0.5] {
            assert!(CellPlace::of_score(score).is_indexable());
        }
        assert_eq!(&CellPlace::of_score(f64::INFINITY).geohash(), b"00bh0hbj200");
    }
}
