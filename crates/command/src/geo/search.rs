//! GEOSEARCH key <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS ... | BYBOX ... | BYPOLYGON ...> ...,
//! GEOSEARCHSTORE, GEORADIUS, GEORADIUSBYMEMBER and their forms that only read

use crate::keyspec;
use darter_pack::entry::Item;
use darter_pack::tree::zset::Edge;
use darter_pack::tree::{Direction, Zset};
use darter_store::KeyView;
use darter_wire::{Args, Reply};

use super::around::Around;
use super::cell::CellPlace;
use super::query::{Destination, DistanceOrder, GeoExtras, GeoQuery, Grammar};
use super::read::{reply_distance, reply_place};
use crate::incremental::StagedForm;
use crate::incremental::staged::may_keep_scores;
use crate::item::reply_item;
use crate::reader::is;
use crate::slices;
use crate::spec::{Effect, Flags, Group, Keys, ReplicaForm, Spec};
use crate::zset::{StoredMembers, event, store};
use crate::{Ctx, DataCommand, Fault};

const SEARCH_COST: &str = "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape";
const RADIUS_COST: &str = "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.";

/// GEOSEARCH.
pub const GEOSEARCH: DataCommand = DataCommand {
    spec: Spec::read("geosearch", -7, Keys::ONE)
        .doc(
            Group::Geo,
            "6.2.0",
            "key [FROMMEMBER member | FROMLONLAT longitude latitude] <BYRADIUS radius <M | KM | FT | MI> | BYBOX width height <M | KM | FT | MI> | BYPOLYGON vertices <longitude latitude> [longitude latitude ...]> [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
            "Queries a geospatial index for members inside an area of a box, a circle or a polygon.",
        )
        .cost(SEARCH_COST),
    run: |ctx, args, reply| search(ctx, args, Grammar::Search, reply),
};
/// GEOSEARCHSTORE.
pub const GEOSEARCHSTORE: DataCommand = DataCommand {
    spec: Spec::write("geosearchstore", -8, Keys::TWO).replica_form(ReplicaForm::Values).key_groups(&[keyspec::one(1, keyspec::WRITTEN), keyspec::one(2, keyspec::READ)])
        .effect(Effect::FirstValue)
        .doc(
            Group::Geo,
            "6.2.0",
            "destination source [FROMMEMBER member | FROMLONLAT longitude latitude] <BYRADIUS radius <M | KM | FT | MI> | BYBOX width height <M | KM | FT | MI> | BYPOLYGON vertices <longitude latitude> [longitude latitude ...]> [ASC | DESC] [COUNT count [ANY]] [STOREDIST]",
            "Queries a geospatial index for members inside an area of a box, a circle or a polygon, and stores the result.",
        )
        .cost(SEARCH_COST),
    run: |ctx, args, reply| search(ctx, args, Grammar::SearchStore, reply),
};
/// GEORADIUS.
pub const GEORADIUS: DataCommand = DataCommand {
    spec: Spec::write("georadius", -6, Keys::Find(radius_keys)).replica_form(ReplicaForm::Values).key_groups(&[keyspec::one(1, keyspec::READ), keyspec::after("STORE", 6, keyspec::WRITTEN), keyspec::after("STOREDIST", 6, keyspec::WRITTEN)]).deprecated("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument")
        .effect(Effect::LastValue)
        .flag(Flags::MOVABLEKEYS)
        .doc(
            Group::Geo,
            "3.2.0",
            "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC] [STORE key | STOREDIST key]",
            "Queries a geospatial index for members within a distance from a coordinate, optionally stores the result.",
        )
        .cost(RADIUS_COST),
    run: |ctx, args, reply| search(ctx, args, Grammar::Radius { may_store: true }, reply),
};
/// GEORADIUS_RO.
pub const GEORADIUS_RO: DataCommand = DataCommand {
    spec: Spec::read("georadius_ro", -6, Keys::ONE).deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` argument")
        .doc(
            Group::Geo,
            "3.2.10",
            "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]",
            "Returns members from a geospatial index that are within a distance from a coordinate.",
        )
        .cost(RADIUS_COST),
    run: |ctx, args, reply| search(ctx, args, Grammar::Radius { may_store: false }, reply),
};
/// GEORADIUSBYMEMBER.
pub const GEORADIUSBYMEMBER: DataCommand = DataCommand {
    spec: Spec::write("georadiusbymember", -5, Keys::Find(radius_by_member_keys)).replica_form(ReplicaForm::Values).key_groups(&[keyspec::one(1, keyspec::READ), keyspec::after("STORE", 5, keyspec::WRITTEN), keyspec::after("STOREDIST", 5, keyspec::WRITTEN)]).deprecated("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments")
        .effect(Effect::LastValue)
        .flag(Flags::MOVABLEKEYS)
        .doc(
            Group::Geo,
            "3.2.0",
            "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC] [STORE key | STOREDIST key]",
            "Queries a geospatial index for members within a distance from a member, optionally stores the result.",
        )
        .cost(RADIUS_COST),
    run: |ctx, args, reply| search(ctx, args, Grammar::RadiusByMember { may_store: true }, reply),
};
/// GEORADIUSBYMEMBER_RO.
pub const GEORADIUSBYMEMBER_RO: DataCommand = DataCommand {
    spec: Spec::read("georadiusbymember_ro", -5, Keys::ONE).deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments")
        .doc(
            Group::Geo,
            "3.2.10",
            "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]",
            "Returns members from a geospatial index that are within a distance from a member.",
        )
        .cost(RADIUS_COST),
    run: |ctx, args, reply| search(ctx, args, Grammar::RadiusByMember { may_store: false }, reply),
};

fn radius_keys(args: Args<'_>, visit: &mut dyn FnMut(usize)) {
    keys_with_store(args, 6, visit);
}

fn radius_by_member_keys(args: Args<'_>, visit: &mut dyn FnMut(usize)) {
    keys_with_store(args, 5, visit);
}

/// The key, and the one that the last of the options from `at` on names as a place to store to.
fn keys_with_store(args: Args<'_>, at: usize, visit: &mut dyn FnMut(usize)) {
    if args.len() > 1 {
        visit(1);
    }
    let (mut at, mut destination) = (at, None);
    while at + 1 < args.len() {
        if is(args.at(at), "store") || is(args.at(at), "storedist") {
            at += 1;
            destination = Some(at);
        }
        at += 1;
    }
    destination.into_iter().for_each(visit);
}

/// A member found.
pub(super) struct Hit<'a> {
    pub member: Item<'a>,
    pub score: f64,
    pub place: CellPlace,
    /// Meters from the center.
    pub distance: f64,
}

fn search(ctx: &mut Ctx<'_>, args: Args<'_>, grammar: Grammar, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let source = args.at(if grammar == Grammar::SearchStore { 2 } else { 1 });
    let is_radius = matches!(grammar, Grammar::Radius { .. } | Grammar::RadiusByMember { .. });
    let event_name = if is_radius { "georadiusstore" } else { "geosearchstore" };
    let (now_ms, may_slice, may_keep) = (ctx.now_ms, ctx.may_slice, may_keep_scores(ctx.env));
    let is_gathered = ctx.staged.is_some();
    let mut key = crate::zset::read(ctx, source);
    let mut zset = key.view::<Zset>()?;
    let query = GeoQuery::parse(args, grammar, zset)?;
    if is_gathered && let Some(to) = query.destination {
        let staged = ctx.staged.take().unwrap_or_default();
        reply.int(staged.put(ctx, to.key, event(event_name))? as i64);
        return Ok(());
    }
    if may_slice
        && (may_keep || query.destination.is_none())
        && let Some(long) = zset.filter(|zset| zset.root.len() > slices::LEN_MAX)
        && let Some((around, stretches)) = Around::of(long, &query, now_ms)
    {
        let sources: Vec<_> = stretches.into_iter().map(|stretch| (source, stretch)).collect();
        let operation = Box::new(around);
        let is_left = match query.destination {
            Some(to) => ctx.store_later((to.key, StagedForm::Zset), &[source], &sources, operation),
            None => ctx.answer_later(&sources, operation, reply.is_resp3()),
        };
        if is_left {
            return Ok(());
        }
        key = ctx.at(source);
        zset = key.view::<Zset>()?;
    }
    let hits = zset.map_or_else(Vec::new, |zset| find(zset, &query));
    let Some(Destination { key: destination, by_distance }) = query.destination else {
        reply_hits(reply, query.extras(), &hits);
        return Ok(());
    };
    let mut members = StoredMembers::default();
    for hit in &hits {
        members.push(hit.member, if by_distance { hit.distance / query.unit } else { hit.score });
    }
    reply.int(store(ctx, destination, &members, event_name)?);
    Ok(())
}

/// The members that a query asks for, in its order.
fn find<'a>(zset: KeyView<'a, Zset>, query: &GeoQuery<'_>) -> Vec<Hit<'a>> {
    let (Some(center), Some(shape)) = (query.center, &query.shape) else { return Vec::new() };
    let count_max = query.count.unwrap_or(usize::MAX);
    let enough = if query.is_any { count_max } else { usize::MAX };
    let mut hits = Vec::new();
    for cell in shape.cells(center) {
        let (from, to) = cell.scores();
        let first = zset.root.rank_of_score(zset.arena, from, Edge::Before);
        for (member, score) in zset.root.iter(zset.arena, first, Direction::Up) {
            if score >= to || hits.len() >= enough {
                break;
            }
            let place = CellPlace::of_score(score);
            if let Some(distance) = shape.distance_within(center, place) {
                hits.push(Hit { member, score, place, distance });
            }
        }
    }
    sort(&mut hits, query.order, |hit| hit.distance);
    hits.truncate(count_max);
    hits
}

/// Sorts the hits in the requested order.
pub(super) fn sort<T>(hits: &mut [T], order: DistanceOrder, distance: impl Fn(&T) -> f64) {
    match order {
        DistanceOrder::Any => {}
        DistanceOrder::Nearest => hits.sort_by(|a, b| distance(a).total_cmp(&distance(b))),
        DistanceOrder::Farthest => hits.sort_by(|a, b| distance(b).total_cmp(&distance(a))),
    }
}

fn reply_hits(reply: &mut Reply<'_>, extras: GeoExtras, hits: &[Hit<'_>]) {
    reply.array(hits.len());
    hits.iter().for_each(|hit| reply_hit(reply, extras, hit));
}

/// Answers one member found.
pub(super) fn reply_hit(reply: &mut Reply<'_>, extras: GeoExtras, hit: &Hit<'_>) {
    let extras_len = [extras.distance_unit.is_some(), extras.hash, extras.place]
        .into_iter()
        .filter(|&is_set| is_set)
        .count();
    if extras_len > 0 {
        reply.array(extras_len + 1);
    }
    reply_item(reply, hit.member);
    if let Some(unit) = extras.distance_unit {
        reply_distance(reply, hit.distance / unit);
    }
    if extras.hash {
        reply.int(hit.score as i64);
    }
    if extras.place {
        reply_place(reply, hit.place);
    }
}
