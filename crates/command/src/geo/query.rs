//! The arguments of GEOSEARCH, GEORADIUS and similar commands as one query.

use darter_pack::tree::Zset;
use darter_store::KeyView;
use darter_wire::Args;

use super::cell::CellPlace;
use super::shape::{GeoShape, middle};
use super::{place, place_of, unit};
use crate::Fault;
use crate::reader::ArgReader;

/// The grammar of a command's query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Grammar {
    /// GEORADIUS, or GEORADIUS_RO without the right to store.
    Radius { may_store: bool },
    /// GEORADIUSBYMEMBER, or GEORADIUSBYMEMBER_RO.
    RadiusByMember { may_store: bool },
    /// GEOSEARCH.
    Search,
    /// GEOSEARCHSTORE.
    SearchStore,
}

/// The order of the answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DistanceOrder {
    /// In the order found.
    Any,
    /// The nearest first.
    Nearest,
    /// The farthest first.
    Farthest,
}

/// The destination of results that are stored instead of replied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Destination<'a> {
    pub key: &'a [u8],
    /// True if the scores are distances.
    pub by_distance: bool,
}

/// The parts of an answer beside the member's name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct GeoExtras {
    /// Its distance, in units of this many meters.
    pub distance_unit: Option<f64>,
    /// Its score.
    pub hash: bool,
    /// Its place.
    pub place: bool,
}

/// A search.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct GeoQuery<'a> {
    /// The center of the search; missing only if the key, and the member with it, is missing.
    pub center: Option<CellPlace>,
    /// The searched area; missing like the center.
    pub shape: Option<GeoShape>,
    /// Meters in the unit of the distances answered.
    pub unit: f64,
    pub order: DistanceOrder,
    /// Answers at most.
    pub count: Option<usize>,
    /// True if any hits suffice.
    pub is_any: bool,
    pub with_distance: bool,
    pub with_hash: bool,
    pub with_place: bool,
    pub destination: Option<Destination<'a>>,
}

/// The options that may occur once.
#[derive(Default)]
struct SeenOptions {
    member: bool,
    place: bool,
    radius: bool,
    in_box: bool,
    polygon: bool,
}

const TOO_FEW_CORNERS: Fault = Fault::text("ERR GEOSEARCH BYPOLYGON must have at least 3 vertices");
const NO_MEMBER: Fault = Fault::text("ERR could not decode requested zset member");

impl<'a> GeoQuery<'a> {
    /// Reads a query over `zset`, which is `None` for a missing key: everything else is still checked.
    pub fn parse(
        args: Args<'a>,
        grammar: Grammar,
        zset: Option<KeyView<'_, Zset>>,
    ) -> Result<GeoQuery<'a>, Fault> {
        let mut query = GeoQuery {
            center: None,
            shape: None,
            unit: 1.0,
            order: DistanceOrder::Any,
            count: None,
            is_any: false,
            with_distance: false,
            with_hash: false,
            with_place: false,
            destination: None,
        };
        let mut reader = ArgReader::new(args, query.parse_head(args, grammar, zset)?);
        let mut seen = SeenOptions::default();
        while !reader.is_done() {
            let is_known = query.take_common(&mut reader)?
                || match grammar {
                    Grammar::Radius { may_store } | Grammar::RadiusByMember { may_store } => {
                        may_store && query.take_store(&mut reader)?
                    }
                    Grammar::Search => query.take_search(args, &mut reader, &mut seen, zset)?,
                    Grammar::SearchStore => {
                        query.take_storedist(&mut reader)
                            || query.take_search(args, &mut reader, &mut seen, zset)?
                    }
                };
            if !is_known {
                return Err(Fault::Syntax);
            }
        }
        query.check(args, grammar, &seen)?;
        Ok(query)
    }

    /// Reads the arguments at fixed places; returns the start of the options.
    fn parse_head(
        &mut self,
        args: Args<'a>,
        grammar: Grammar,
        zset: Option<KeyView<'_, Zset>>,
    ) -> Result<usize, Fault> {
        match (grammar, zset) {
            (Grammar::Radius { .. }, _) => {
                self.center = Some(place(args, 2)?);
                self.take_circle(&mut ArgReader::new(args, 4))?;
                Ok(6)
            }
            // The radius is checked only if there is a center.
            (Grammar::RadiusByMember { .. }, None) => Ok(5),
            (Grammar::RadiusByMember { .. }, Some(zset)) => {
                self.center = Some(place_of(zset, args.at(2)).ok_or(NO_MEMBER)?);
                self.take_circle(&mut ArgReader::new(args, 3))?;
                Ok(5)
            }
            (Grammar::Search, _) => Ok(2),
            (Grammar::SearchStore, _) => {
                self.destination = Some(Destination { key: args.at(1), by_distance: false });
                Ok(3)
            }
        }
    }

    /// The parts answered beside the names.
    pub fn extras(&self) -> GeoExtras {
        let distance_unit = self.with_distance.then_some(self.unit);
        GeoExtras { distance_unit, hash: self.with_hash, place: self.with_place }
    }

    fn take_common(&mut self, reader: &mut ArgReader<'a>) -> Result<bool, Fault> {
        if reader.take("withdist") {
            self.with_distance = true;
        } else if reader.take("withhash") {
            self.with_hash = true;
        } else if reader.take("withcoord") {
            self.with_place = true;
        } else if reader.take("any") {
            self.is_any = true;
        } else if reader.take("asc") {
            self.order = DistanceOrder::Nearest;
        } else if reader.take("desc") {
            self.order = DistanceOrder::Farthest;
        } else if reader.take_with("count", 1) {
            let count = reader.int()?;
            if count <= 0 {
                return Err(Fault::text("ERR COUNT must be > 0"));
            }
            self.count = Some(usize::try_from(count).unwrap_or(usize::MAX));
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn take_store(&mut self, reader: &mut ArgReader<'a>) -> Result<bool, Fault> {
        let by_distance = if reader.take_with("store", 1) {
            false
        } else if reader.take_with("storedist", 1) {
            true
        } else {
            return Ok(false);
        };
        self.destination = Some(Destination { key: reader.bytes()?, by_distance });
        Ok(true)
    }

    fn take_storedist(&mut self, reader: &mut ArgReader<'a>) -> bool {
        let is_taken = reader.take("storedist");
        if let (true, Some(destination)) = (is_taken, &mut self.destination) {
            destination.by_distance = true;
        }
        is_taken
    }

    fn take_search(
        &mut self,
        args: Args<'a>,
        reader: &mut ArgReader<'a>,
        seen: &mut SeenOptions,
        zset: Option<KeyView<'_, Zset>>,
    ) -> Result<bool, Fault> {
        if !(seen.place || seen.polygon) && reader.take_with("frommember", 1) {
            let member = reader.bytes()?;
            if let Some(zset) = zset {
                self.center = Some(place_of(zset, member).ok_or(NO_MEMBER)?);
            }
            seen.member = true;
        } else if !(seen.member || seen.polygon) && reader.take_with("fromlonlat", 2) {
            self.center = Some(place(args, reader.position())?);
            reader.skip(2);
            seen.place = true;
        } else if !(seen.in_box || seen.polygon) && reader.take_with("byradius", 2) {
            self.take_circle(reader)?;
            seen.radius = true;
        } else if !(seen.radius || seen.polygon) && reader.take_with("bybox", 3) {
            self.take_box(reader)?;
            seen.in_box = true;
        } else if !(seen.radius || seen.in_box || seen.member) && reader.take_with("bypolygon", 1) {
            self.take_polygon(args, reader)?;
            seen.polygon = true;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn take_circle(&mut self, reader: &mut ArgReader<'a>) -> Result<(), Fault> {
        let radius = reader.float().map_err(|_| Fault::text("ERR need numeric radius"))?;
        if radius < 0.0 {
            return Err(Fault::text("ERR radius cannot be negative"));
        }
        self.unit = unit(reader.bytes()?)?;
        self.shape = Some(GeoShape::Circle { radius: radius * self.unit });
        Ok(())
    }

    fn take_box(&mut self, reader: &mut ArgReader<'a>) -> Result<(), Fault> {
        let width = reader.float().map_err(|_| Fault::text("ERR need numeric width"))?;
        let height = reader.float().map_err(|_| Fault::text("ERR need numeric height"))?;
        if width < 0.0 || height < 0.0 {
            return Err(Fault::text("ERR height or width cannot be negative"));
        }
        self.unit = unit(reader.bytes()?)?;
        self.shape = Some(GeoShape::Box { width: width * self.unit, height: height * self.unit });
        Ok(())
    }

    fn take_polygon(&mut self, args: Args<'a>, reader: &mut ArgReader<'a>) -> Result<(), Fault> {
        let corners_len = reader.int()?;
        let room = reader.left() / 2;
        let corners_len = usize::try_from(corners_len).ok().filter(|&len| (3..=room).contains(&len));
        let corners_len = corners_len.ok_or(TOO_FEW_CORNERS)?;
        let first = reader.position();
        let corners = (0..corners_len).map(|corner| place(args, first + 2 * corner));
        self.shape = Some(GeoShape::Polygon { corners: corners.collect::<Result<_, _>>()? });
        reader.skip(2 * corners_len);
        Ok(())
    }

    /// Checks that need all options.
    fn check(&mut self, args: Args<'a>, grammar: Grammar, seen: &SeenOptions) -> Result<(), Fault> {
        let is_search = matches!(grammar, Grammar::Search | Grammar::SearchStore);
        if self.destination.is_some() && (self.with_distance || self.with_hash || self.with_place) {
            let what = if is_search { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            let text = format!("ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options");
            return Err(Fault::Text(text.into()));
        }
        let name = String::from_utf8_lossy(args.at(0));
        if is_search && !(seen.member || seen.place || seen.polygon) {
            let text = format!("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}");
            return Err(Fault::Text(text.into()));
        }
        if is_search && !(seen.radius || seen.in_box || seen.polygon) {
            let text = format!("ERR exactly one of BYRADIUS and BYBOX can be specified for {name}");
            return Err(Fault::Text(text.into()));
        }
        if self.is_any && self.count.is_none() {
            return Err(Fault::text("ERR the ANY argument requires COUNT argument"));
        }
        // The nearest, unless another order is requested.
        if self.count.is_some() && self.order == DistanceOrder::Any && !self.is_any {
            self.order = DistanceOrder::Nearest;
        }
        if let (None, Some(GeoShape::Polygon { corners })) = (self.center, &self.shape) {
            self.center = Some(middle(corners));
        }
        Ok(())
    }
}
