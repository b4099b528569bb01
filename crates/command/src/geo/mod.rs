//! Places on the earth: sorted sets whose scores are geohashes of 52 bits.

pub mod add;
mod around;
mod cell;
pub mod query;
pub mod read;
pub mod search;
mod shape;
#[cfg(test)]
mod tests;

use darter_pack::entry::Item;
use darter_pack::tree::Zset;
use darter_store::KeyView;
use darter_wire::Args;

use self::cell::CellPlace;
use crate::reader::{self, is};
use crate::{DataCommand, Fault};

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[
    add::GEOADD,
    read::GEODIST,
    read::GEOHASH,
    read::GEOPOS,
    search::GEOSEARCH,
    search::GEOSEARCHSTORE,
    search::GEORADIUS,
    search::GEORADIUS_RO,
    search::GEORADIUSBYMEMBER,
    search::GEORADIUSBYMEMBER_RO,
];

/// Meters in a unit.
fn unit(arg: &[u8]) -> Result<f64, Fault> {
    match arg {
        _ if is(arg, "m") => Ok(1.0),
        _ if is(arg, "km") => Ok(1000.0),
        _ if is(arg, "ft") => Ok(0.3048),
        _ if is(arg, "mi") => Ok(1609.34),
        _ => Err(Fault::text("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

/// The place that arguments `at` and `at + 1` give as longitude and latitude.
fn place(args: Args<'_>, at: usize) -> Result<CellPlace, Fault> {
    let place =
        CellPlace { longitude: reader::float(args.at(at))?, latitude: reader::float(args.at(at + 1))? };
    if place.is_indexable() {
        return Ok(place);
    }
    let CellPlace { longitude, latitude } = place;
    Err(Fault::Text(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}").into()))
}

/// The place of a member.
fn place_of(zset: KeyView<'_, Zset>, member: &[u8]) -> Option<CellPlace> {
    zset.root.score(zset.arena, &zset.hasher, Item::of(member)).map(CellPlace::of_score)
}
