//! The modules of Redis whose commands are built in: which clients check before they use them.

use darter_command::spec::Group;
use darter_wire::Reply;

/// A module, under the name that Redis gives it.
struct Module {
    name: &'static str,
    groups: &'static [Group],
}

/// Every module whose commands are here.
const MODULES: &[Module] = &[
    Module { name: "ReJSON", groups: &[Group::Json] },
    Module {
        name: "bf",
        groups: &[Group::Bloom, Group::Cuckoo, Group::CountMin, Group::TopK, Group::Digest],
    },
    Module { name: "timeseries", groups: &[Group::Series] },
];
/// The version that all of them have: Redis 8.10.
const VERSION: i64 = 81_000;

/// Answers the modules as MODULE LIST and HELLO do.
pub fn reply_all(reply: &mut Reply<'_>) {
    reply.array(MODULES.len());
    for module in MODULES {
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(module.name.as_bytes());
        reply.bulk(b"ver");
        reply.int(VERSION);
        reply.bulk(b"path");
        reply.bulk(b"");
        reply.bulk(b"args");
        reply.array(0);
    }
}

/// The lines of INFO's section.
pub fn lines() -> impl Iterator<Item = String> {
    MODULES.iter().map(|module| {
        format!("name={},ver={VERSION},api=1,filters=0,usedby=[],using=[],options=[]", module.name)
    })
}

/// Returns true if a command of `group` belongs to the module called `name`, in any case.
pub fn has_group(name: &[u8], group: Group) -> bool {
    let named = MODULES.iter().find(|module| module.name.as_bytes().eq_ignore_ascii_case(name));
    named.is_some_and(|module| module.groups.contains(&group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_listed_with_its_version_and_has_commands() {
        let mut out = Vec::new();
        reply_all(&mut Reply::new(&mut out, false));
        let wanted =
            format!("*{}\r\n*8\r\n$4\r\nname\r\n$6\r\nReJSON\r\n$3\r\nver\r\n:81000\r\n", MODULES.len());
        assert!(out.starts_with(wanted.as_bytes()), "{}", out.escape_ascii());
        assert!(lines().any(|line| line.starts_with("name=ReJSON,ver=81000,")));
        assert!(has_group(b"rejson", Group::Json) && !has_group(b"rejson", Group::Hash));
        assert!(!has_group(b"nothing", Group::Json));
    }
}
