//! GEODIST key member1 member2 [M | KM | FT | MI], GEOHASH key [member ...], GEOPOS key [member ...]

use darter_base::longdouble::LongDouble;
use darter_base::number::write_f64_fixed;
use darter_pack::tree::Zset;
use darter_wire::{Args, Reply};

use super::cell::CellPlace;
use super::{place_of, shape, unit};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// GEODIST.
pub const GEODIST: DataCommand = DataCommand {
    spec: Spec::read("geodist", -4, Keys::ONE)
        .doc(
            Group::Geo,
            "3.2.0",
            "key member1 member2 [M | KM | FT | MI]",
            "Returns the distance between two members of a geospatial index.",
        )
        .cost("O(1)"),
    run: geodist,
};
/// GEOHASH.
pub const GEOHASH: DataCommand = DataCommand {
    spec: Spec::read("geohash", -2, Keys::ONE)
        .doc(
            Group::Geo,
            "3.2.0",
            "key [member [member ...]]",
            "Returns members from a geospatial index as geohash strings.",
        )
        .cost("O(1) for each member requested."),
    run: geohash,
};
/// GEOPOS.
pub const GEOPOS: DataCommand = DataCommand {
    spec: Spec::read("geopos", -2, Keys::ONE)
        .doc(
            Group::Geo,
            "3.2.0",
            "key [member [member ...]]",
            "Returns the longitude and latitude of members from a geospatial index.",
        )
        .cost("O(1) for each member requested."),
    run: geopos,
};

fn geodist(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let meters_in_unit = match args.len() {
        4 => 1.0,
        5 => unit(args.at(4))?,
        _ => return Err(Fault::Syntax),
    };
    let key = crate::zset::read(ctx, args.at(1));
    let places = key.view::<Zset>()?.map(|zset| (place_of(zset, args.at(2)), place_of(zset, args.at(3))));
    match places {
        Some((Some(a), Some(b))) => reply_distance(reply, shape::distance(a, b) / meters_in_unit),
        _ => reply.null(),
    }
    Ok(())
}

fn geohash(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let key = crate::zset::read(ctx, args.at(1));
    let zset = key.view::<Zset>()?;
    let members = args.tail(2);
    reply.array(members.len());
    for member in members.iter() {
        match zset.and_then(|zset| place_of(zset, member)) {
            Some(place) => reply.bulk(&place.geohash()),
            None => reply.null(),
        }
    }
    Ok(())
}

fn geopos(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let key = crate::zset::read(ctx, args.at(1));
    let zset = key.view::<Zset>()?;
    let members = args.tail(2);
    reply.array(members.len());
    for member in members.iter() {
        match zset.and_then(|zset| place_of(zset, member)) {
            Some(place) => reply_place(reply, place),
            None => reply.null_array(),
        }
    }
    Ok(())
}

/// Answers a distance as Redis does: a string with four decimals.
pub(super) fn reply_distance(reply: &mut Reply<'_>, distance: f64) {
    let mut text = Vec::with_capacity(24);
    write_f64_fixed(&mut text, distance, 4);
    reply.bulk(&text);
}

/// Answers longitude and latitude with up to seventeen decimals.
pub(super) fn reply_place(reply: &mut Reply<'_>, place: CellPlace) {
    reply.array(2);
    for degrees in [place.longitude, place.latitude] {
        let mut text = Vec::with_capacity(24);
        LongDouble::from_f64(degrees).write(&mut text);
        if reply.is_resp3() {
            reply.raw(b",");
            reply.raw(&text);
            reply.raw(b"\r\n");
        } else {
            reply.bulk(&text);
        }
    }
}
