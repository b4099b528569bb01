//! Closing clients whose user has gone, or may no longer hear what they are subscribed to.

use std::sync::Arc;

use darter_wire::Args;

use crate::clients::ClientInfo;
use crate::commands::client;
use crate::dispatch::Caller;
use crate::pubsub::SubscriptionKind;
use crate::session::Session;
use crate::shared::Shared;
use crate::sync::lock;
use darter_acl::User;

/// Closes the clients of users that have been removed.
pub fn close_clients_of(shared: &Shared, own: &mut Session, removed: &[Arc<User>]) {
    let is_of = |info: &ClientInfo| {
        let user = &lock(&info.words).user;
        removed.iter().any(|removed| *removed.name == **user)
    };
    close_where(shared, own, is_of);
}

/// Closes the subscribers that a change of their user has taken a channel from.
pub fn close_subscribers(shared: &Shared, own: &mut Session, before: &User, after: &User) {
    if !loses_channels(before, after) {
        return;
    }
    let hears_too_much = |info: &ClientInfo| {
        info.subscriptions_len() > 0 && lock(&info.words).user == *after.name && !may_listen(after, info)
    };
    close_where(shared, own, hears_too_much);
}

/// Looks again at what a client has just subscribed to, should its user have changed meanwhile: whoever changed it may
/// have looked before the subscription could be seen.
pub fn check_subscribed(caller: &mut Caller<'_>, kind: SubscriptionKind, names: Args<'_>) {
    let acl = &caller.local.shared.acl;
    if !caller.session.is_user_stale(acl) {
        return;
    }
    caller.session.settle_user(acl);
    let user = caller.session.user.clone();
    if !names.iter().all(|name| allows(&user, kind, name)) {
        caller.session.is_closing = true;
    }
}

fn allows(user: &User, kind: SubscriptionKind, name: &[u8]) -> bool {
    user.selectors().iter().any(|selector| selector.allows_channel(name, kind == SubscriptionKind::Pattern))
}

/// Returns true if a pattern of channels is missing that was allowed before.
fn loses_channels(before: &User, after: &User) -> bool {
    if after.selectors().iter().any(|selector| selector.has_all_channels()) {
        return false;
    }
    let had_all = before.selectors().iter().any(|selector| selector.has_all_channels());
    let mut old = before.selectors().iter().flat_map(|selector| selector.channels());
    let is_kept = |pattern| after.selectors().iter().any(|selector| selector.channels().contains(pattern));
    had_all || !old.all(is_kept)
}

fn may_listen(user: &User, info: &ClientInfo) -> bool {
    let Some(names) = info.subscribed() else { return true };
    let kinds = [SubscriptionKind::Channel, SubscriptionKind::Pattern, SubscriptionKind::Shard];
    kinds.into_iter().all(|kind| names.all(kind, |name| allows(user, kind, name)))
}

fn close_where(shared: &Shared, own: &mut Session, is_meant: impl Fn(&ClientInfo) -> bool) {
    let meant: Vec<Arc<ClientInfo>> =
        lock(&shared.clients).values().filter(|info| is_meant(info)).cloned().collect();
    for info in meant {
        if info.id == own.id {
            own.is_closing = true;
        } else {
            client::close(shared, &info);
        }
    }
}
