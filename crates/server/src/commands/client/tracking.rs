//! CLIENT TRACKING, TRACKINGINFO, CACHING, GETREDIR: caches on the client's side.

use std::collections::BTreeSet;
use std::ops::Bound;

use darter_command::reader::is;
use darter_command::{ArgReader, Fault};
use darter_wire::{Args, Reply};

use crate::dispatch::Caller;
use crate::sync::lock;
use crate::tracking::{self, Caching, ClientTracking, TrackingMode};

/// CLIENT TRACKING
pub fn tracking(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let options = TrackingOptions::parse(caller, args)?;
    match args.at(2) {
        arg if is(arg, "ON") => {
            let wanted = options.settle(caller.session.tracking.as_deref())?;
            tracking::begin(caller.local, caller.session, caller.info.token, wanted);
        }
        arg if is(arg, "OFF") => tracking::end(caller.local, caller.session),
        _ => return Err(Fault::Syntax),
    }
    reply.ok();
    Ok(())
}

#[derive(Default)]
struct TrackingOptions<'a> {
    redirect: i64,
    bcast: bool,
    optin: bool,
    optout: bool,
    noloop: bool,
    prefixes: Vec<&'a [u8]>,
}

impl<'a> TrackingOptions<'a> {
    fn parse(caller: &Caller<'_>, args: Args<'a>) -> Result<TrackingOptions<'a>, Fault> {
        let mut options = TrackingOptions::default();
        let mut reader = ArgReader::new(args, 3);
        while !reader.is_done() {
            if reader.take_with("REDIRECT", 1) {
                if options.redirect != 0 {
                    return Err(Fault::text("ERR A client can only redirect to a single other client"));
                }
                options.redirect = reader.int()?;
                let clients = lock(&caller.local.shared.clients);
                if !u64::try_from(options.redirect).is_ok_and(|id| clients.contains_key(&id)) {
                    return Err(Fault::text("ERR The client ID you want redirect to does not exist"));
                }
            } else if reader.take("BCAST") {
                options.bcast = true;
            } else if reader.take("OPTIN") {
                options.optin = true;
            } else if reader.take("OPTOUT") {
                options.optout = true;
            } else if reader.take("NOLOOP") {
                options.noloop = true;
            } else if reader.take_with("PREFIX", 1) {
                options.prefixes.push(reader.bytes()?);
            } else {
                return Err(Fault::Syntax);
            }
        }
        Ok(options)
    }

    /// The effect of the options on a connection that tracks as `before`, or not yet.
    fn settle(self, before: Option<&ClientTracking>) -> Result<ClientTracking, Fault> {
        if !self.bcast && !self.prefixes.is_empty() {
            return Err(Fault::text("ERR PREFIX option requires BCAST mode to be enabled"));
        }
        let mode_before = before.map(|before| before.mode);
        if mode_before.is_some_and(|mode| (mode == TrackingMode::Broadcast) != self.bcast) {
            return Err(Fault::text(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
                 re-enabling it with a different mode.",
            ));
        }
        if self.bcast && (self.optin || self.optout) {
            return Err(Fault::text("ERR OPTIN and OPTOUT are not compatible with BCAST"));
        }
        if self.optin && self.optout {
            return Err(Fault::text("ERR You can't specify both OPTIN mode and OPTOUT mode"));
        }
        if (self.optin && mode_before == Some(TrackingMode::OptOut))
            || (self.optout && mode_before == Some(TrackingMode::OptIn))
        {
            return Err(Fault::text(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
                 re-enabling it with a different mode.",
            ));
        }
        let mut prefixes: Vec<Box<[u8]>> = before.map_or(Vec::new(), |before| before.prefixes.clone());
        if self.bcast {
            refuse_overlaps(&prefixes, &self.prefixes)?;
            prefixes.extend(self.prefixes.iter().map(|prefix| Box::from(*prefix)));
            if self.prefixes.is_empty() {
                // All keys from now on, which include its former prefixes.
                prefixes = vec![Box::default()];
            }
        }
        let mode = match self {
            TrackingOptions { bcast: true, .. } => TrackingMode::Broadcast,
            TrackingOptions { optin: true, .. } => TrackingMode::OptIn,
            TrackingOptions { optout: true, .. } => TrackingMode::OptOut,
            _ => TrackingMode::All,
        };
        let redirect = u64::try_from(self.redirect).ok().filter(|&id| id != 0);
        let prefix_bytes = prefixes.iter().map(|prefix| prefix.len() + PREFIX_BYTES).sum();
        Ok(ClientTracking {
            redirect,
            mode,
            noloop: self.noloop,
            prefixes,
            prefix_bytes,
            ..ClientTracking::default()
        })
    }
}

/// Bytes of a prefix beside its text.
const PREFIX_BYTES: usize = 64;

/// A key must not have two prefixes of one client, or its changes would be sent twice. Cost: a search for each
/// prefix.
fn refuse_overlaps(old: &[Box<[u8]>], new: &[&[u8]]) -> Result<(), Fault> {
    let refuse = |prefix: &[u8], what: &str, other: &[u8]| {
        let (prefix, other) = (String::from_utf8_lossy(prefix), String::from_utf8_lossy(other));
        let text = format!(
            "ERR Prefix '{prefix}' overlaps with {what} '{other}'. Prefixes for a single client must not overlap."
        );
        Err(Fault::Text(text.into()))
    };
    let old: BTreeSet<&[u8]> = old.iter().map(|prefix| &**prefix).collect();
    let mut earlier = BTreeSet::new();
    for &prefix in new {
        if let Some(other) = overlapping(&old, prefix) {
            return refuse(prefix, "an existing prefix", other);
        }
        if let Some(other) = overlapping(&earlier, prefix) {
            return refuse(other, "another provided prefix", prefix);
        }
        earlier.insert(prefix);
    }
    Ok(())
}

/// One of `prefixes`, none of which begins with another, that begins with `prefix` or is the beginning of it. Any
/// text between a text and one of its beginnings has the same beginning, so it suffices to check the neighbours.
fn overlapping<'a>(prefixes: &BTreeSet<&'a [u8]>, prefix: &[u8]) -> Option<&'a [u8]> {
    let before = prefixes.range::<[u8], _>((Bound::Unbounded, Bound::Included(prefix))).next_back();
    let after = prefixes.range::<[u8], _>((Bound::Excluded(prefix), Bound::Unbounded)).next();
    before
        .filter(|other| prefix.starts_with(other))
        .or_else(|| after.filter(|other| other.starts_with(prefix)))
        .copied()
}

/// CLIENT TRACKINGINFO
pub fn trackinginfo(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let own = caller.session.tracking.as_deref();
    let flags: Vec<&str> = match own {
        None => vec!["off"],
        Some(own) => [
            (true, "on"),
            (own.mode == TrackingMode::Broadcast, "bcast"),
            (own.mode == TrackingMode::OptIn, "optin"),
            (own.mode == TrackingMode::OptIn && own.caching.holds(), "caching-yes"),
            (own.mode == TrackingMode::OptOut, "optout"),
            (own.mode == TrackingMode::OptOut && own.caching.holds(), "caching-no"),
            (own.noloop, "noloop"),
            (own.is_broken, "broken_redirect"),
        ]
        .iter()
        .filter_map(|(is_set, word)| is_set.then_some(*word))
        .collect(),
    };
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.int(redirection(own));
    reply.bulk(b"prefixes");
    let mut prefixes: Vec<&[u8]> = own.map_or(Vec::new(), |own| own.prefixes.iter().map(|p| &**p).collect());
    prefixes.sort_unstable();
    reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.bulk(prefix));
    Ok(())
}

/// The client that gets the messages: 0 for the same one, -1 without tracking.
fn redirection(own: Option<&ClientTracking>) -> i64 {
    own.map_or(-1, |own| own.redirect.map_or(0, |id| i64::try_from(id).unwrap_or(i64::MAX)))
}

/// CLIENT CACHING
pub fn caching(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let own = caller.session.tracking.as_mut().ok_or(Fault::text(
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
    ))?;
    match args.at(2) {
        arg if is(arg, "YES") && own.mode != TrackingMode::OptIn => {
            Err(Fault::text("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."))
        }
        arg if is(arg, "NO") && own.mode != TrackingMode::OptOut => {
            Err(Fault::text("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."))
        }
        arg if is(arg, "YES") || is(arg, "NO") => {
            own.caching = Caching::Next;
            reply.ok();
            Ok(())
        }
        _ => Err(Fault::Syntax),
    }
}

/// CLIENT GETREDIR
pub fn getredir(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.int(redirection(caller.session.tracking.as_deref()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_found_wherever_they_stand_and_among_many_at_once() {
        let boxed = |names: &[&str]| names.iter().map(|name| Box::from(name.as_bytes())).collect::<Vec<_>>();
        for (old, new, is_refused) in [
            (&["b:", "a"][..], &["b", "c"][..], true),
            (&["b:", "a"], &["b:x"], true),
            (&["b:", "a"], &["a"], true),
            (&["b:", "a"], &["b-", "b;", "c"], false),
            (&[], &["x", "y", "xy"], true),
            (&[], &["xy", "y", "x"], true),
            (&[], &["x", "x"], true),
            (&[], &["a", ""], true),
            (&[""], &["a"], true),
            (&[], &["ab", "aab", "b", "aaab"], false),
        ] {
            let new: Vec<&[u8]> = new.iter().map(|name| name.as_bytes()).collect();
            assert_eq!(refuse_overlaps(&boxed(old), &new).is_err(), is_refused, "{old:?} {new:?}");
        }
        let names: Vec<String> = (0..200_000).map(|n| format!("{n:06}")).collect();
        let many: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let began = std::time::Instant::now();
        assert!(refuse_overlaps(&[], &many).is_ok());
        // each with each takes minutes
        assert!(began.elapsed().as_secs() < 30);
    }
}
