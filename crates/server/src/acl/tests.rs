use darter_acl::{Changed, Denied, words};

use super::*;
use darter_base::rng::Rng;
use darter_wire::OwnedArgs;

fn acl() -> Acl {
    Acl::new(rows(&Registry::build()), 16)
}

fn set(acl: &Acl, rules: &str) -> Result<Changed, String> {
    acl.set_user("u", rules.split(' ').filter(|rule| !rule.is_empty()).map(str::as_bytes), false)
}

fn commands(acl: &Acl, rules: &str) -> String {
    set(acl, &format!("reset {rules}")).expect("good rules").after.own().describe_commands()
}

fn denied(acl: &Acl, registry: &Registry, db: usize, line: &str) -> Option<Denied> {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let owned = OwnedArgs::from_slices(&words);
    let entry = commands::find_command(registry, owned.args()).expect("a command");
    let call = CheckedCall { command: entry.id, args: owned.args(), db };
    acl.user("u").expect("the user").check(acl.catalog(), call).err()
}

#[test]
fn rules_about_commands_are_kept_in_order_and_once() {
    let acl = acl();
    for (rules, shown) in [
        ("", "-@all"),
        ("+@all -@hash -@slow +hget", "+@all -@hash -@slow +hget"),
        ("+@all -@hash -@slow +hget -@hash", "+@all -@slow +hget -@hash"),
        ("+@all -@slow +@HASH +@hash", "+@all -@slow +@hash"),
        ("+hget -hset +hset -hget", "-@all +hset -hget"),
        ("+client|list +client|list +config|get +config +acl|list -acl", "-@all +client|list +config -acl"),
        ("+select|0 +SELECT|0 +debug|segfault +debug", "-@all +select|0 +debug"),
        ("+config +config|get -config|set +config", "-@all +config"),
        ("-@string -@slow +@all", "+@all"),
        ("+@all +client|id", "+@all +client|id"),
        // Commands of Dragonfly alone.
        ("+get +dfly -DFLY|flow +dflymigrate", "-@all +get"),
    ] {
        assert_eq!(commands(&acl, rules), shown, "{rules}");
    }
}

#[test]
fn what_is_no_rule_says_why_and_changes_nothing() {
    let acl = acl();
    set(&acl, "on +get ~a").expect("good rules");
    let before = acl.user("u").expect("the user").describe();
    let long = "Adding a pattern after the *";
    for (rules, fault) in [
        ("off foo", "'foo': Syntax error"),
        ("off +foo", "'+foo': Unknown command or category name in ACL"),
        ("off -foo", "Unknown command"),
        ("off +@foo", "Unknown command"),
        ("off +config|foo", "Unknown command"),
        ("off +config|get|x", "Allowing first-arg of a subcommand is not supported"),
        ("off +get|a|b", "Unknown command"),
        ("off -get|a", "Unknown command"),
        ("off +get|", "Syntax error"),
        ("off +", "Unknown command"),
        ("off -", "Unknown command"),
        ("off %~", "'%~': Syntax error"),
        ("off %~k", "Syntax error"),
        ("off %K~k", "Syntax error"),
        ("off %RR~k", "Syntax error"),
        ("off %", "Syntax error"),
        ("off ~* ~a", long),
        ("off &* &a", long),
        ("off <nosuch", "The password you are trying to remove from the user does not exist"),
        ("off #00", "The password hash must be exactly 64 characters"),
        ("off !00", "The password hash must be exactly 64 characters"),
        ("off (foo)", "'(foo)': Syntax error"),
        ("off (on)", "Syntax error"),
        ("off (clearselectors)", "Syntax error"),
        ("off ((+get))", "Syntax error"),
        ("off )", "Syntax error"),
        ("off (+get", "Unmatched parenthesis in acl selector starting at '(+get'."),
        ("off $x", "Syntax error"),
        ("off $-1", "Syntax error"),
        ("off $", "Syntax error"),
    ] {
        let error = set(&acl, rules).err().unwrap_or_default();
        assert!(error.contains(fault), "{rules}: {error}");
        assert_eq!(acl.user("u").expect("the user").describe(), before, "{rules}");
    }
}

#[test]
fn any_bytes_are_a_rule_or_a_fault_and_what_is_shown_makes_the_same_user() {
    let acl = acl();
    let mut rng = Rng::new(7);
    let pieces = [
        "on",
        "off",
        "nopass",
        "resetpass",
        ">pw",
        ">other",
        "<pw",
        "reset",
        "allkeys",
        "~*",
        "~a*",
        "%R~r*",
        "%W~w*",
        "%RW~b",
        "%r~x",
        "resetkeys",
        "&*",
        "&c*",
        "allchannels",
        "resetchannels",
        "+@all",
        "-@all",
        "+@read",
        "-@write",
        "+get",
        "-get",
        "+config|get",
        "-config|set",
        "+select|0",
        "+debug|x",
        "-debug",
        "(+get",
        "~k)",
        "(",
        ")",
        "()",
        "(%R~k +@read &c)",
        "clearselectors",
        "$1",
        "$3",
        "$ALL",
        "sanitize-payload",
        "skip-sanitize-payload",
        "~",
        "&",
        "%~",
        "+",
        "-",
        "+@",
        "#",
        "!",
        "\u{0}",
        "~\u{7f}",
        "+é",
    ];
    for round in 0..4000 {
        let rules: Vec<&[u8]> =
            (0..rng.below(6)).map(|_| pieces[rng.below(pieces.len() as u64) as usize].as_bytes()).collect();
        let Ok(changed) = acl.set_user("u", rules.iter().copied(), round % 2 == 0) else { continue };
        let shown = changed.after.describe();
        let mut words = words(&shown).skip(2).collect::<Vec<_>>();
        words.insert(0, b"reset");
        let again = acl.set_user("v", words.iter().copied(), false).map(|changed| changed.after.describe());
        let again = again.map(|line| [b"user u", line.strip_prefix(b"user v").unwrap_or_default()].concat());
        assert_eq!(again.as_deref(), Ok(&*shown), "{:?}", String::from_utf8_lossy(&shown));
    }
}

#[test]
fn passwords_let_in_as_a_whole_or_not_at_all() {
    let acl = acl();
    set(&acl, "on >secret >other").expect("good rules");
    for (given, fits) in
        [("secret", true), ("other", true), ("secre", false), ("secretsecret", false), ("", false)]
    {
        assert_eq!(acl.login(b"u", given.as_bytes()).is_some(), fits, "{given}");
    }
    assert!(acl.login(b"v", b"secret").is_none() && acl.login(b"\xff", b"secret").is_none());
    set(&acl, "off").expect("good rules");
    assert!(acl.login(b"u", b"secret").is_none());
    set(&acl, "on nopass").expect("good rules");
    assert!(acl.login(b"u", b"whatever").is_some());
    set(&acl, "resetpass").expect("good rules");
    assert!(acl.login(b"u", b"whatever").is_none());
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    set(&acl, &format!("#{hash}")).expect("good rules");
    assert!(acl.login(b"u", b"secret").is_some());
    assert!(String::from_utf8(acl.user("u").expect("u").describe()).expect("text").contains(hash));
}

#[test]
fn the_default_user_decides_who_must_log_in() {
    let acl = acl();
    assert!(!acl.default_needs_login() && !acl.default_has_password());
    acl.set_default_password(b"x");
    assert!(acl.default_needs_login() && acl.default_has_password());
    acl.set_default_password(b"");
    assert!(!acl.default_needs_login());
    acl.set_user("default", [b"off" as &[u8]].into_iter(), false).expect("good rules");
    assert!(acl.default_needs_login() && !acl.default_has_password());
    assert!(acl.remove_users(["default"].into_iter()).is_empty() && acl.user("default").is_some());
}

#[test]
fn selectors_do_not_add_up() {
    let (acl, registry) = (acl(), Registry::build());
    set(&acl, "on (%R~r* +@all) (%W~w* +@all)").expect("good rules");
    assert_eq!(denied(&acl, &registry, 0, "get r1"), None);
    assert_eq!(denied(&acl, &registry, 0, "lpush w1 x"), None);
    assert_eq!(denied(&acl, &registry, 0, "copy r1 w1"), Some(Denied::Key(2)));
    assert_eq!(denied(&acl, &registry, 0, "lpush r1 x"), Some(Denied::Key(1)));
    set(&acl, "reset +mget ~key (+mget ~key ~other)").expect("good rules");
    assert_eq!(denied(&acl, &registry, 0, "mget key other third"), Some(Denied::Key(3)));
    assert_eq!(denied(&acl, &registry, 0, "get key"), Some(Denied::Command));
    assert_eq!(denied(&acl, &registry, 0, "mget key other"), None);
}

#[test]
fn first_arguments_and_subcommands_are_told_apart() {
    let (acl, registry) = (acl(), Registry::build());
    set(&acl, "+select|0 +config|get +debug|object ~*").expect("good rules");
    for (line, fits) in [
        ("select 0", true),
        ("select 1", false),
        ("config get x", true),
        ("config set x y", false),
        ("debug object k", true),
        ("debug OBJECT k", true),
        ("debug sleep 0", false),
        ("auth x", true),
    ] {
        assert_eq!(denied(&acl, &registry, 0, line).is_none(), fits, "{line}");
    }
    set(&acl, "+select -select").expect("good rules");
    assert_eq!(denied(&acl, &registry, 0, "select 0"), Some(Denied::Command));
}

#[test]
fn channels_match_as_names_or_as_patterns() {
    let (acl, registry) = (acl(), Registry::build());
    set(&acl, "+@all &foo:1 &bar:*").expect("good rules");
    for (line, refused) in [
        ("publish foo:1 x", None),
        ("publish zap x", Some(Denied::Channel(1))),
        ("spublish bar:9 zap", None),
        ("subscribe foo:1 bar:2", None),
        ("subscribe foo:1 zap", Some(Denied::Channel(2))),
        ("psubscribe bar:*", None),
        ("psubscribe bar:2", Some(Denied::Channel(1))),
        ("ssubscribe zap", Some(Denied::Channel(1))),
        ("unsubscribe zap", None),
        ("sunsubscribe zap", None),
    ] {
        assert_eq!(denied(&acl, &registry, 0, line), refused, "{line}");
    }
}

#[test]
fn databases_are_kept_apart() {
    let (acl, registry) = (acl(), Registry::build());
    set(&acl, "+@all ~* &* $1 $3").expect("good rules");
    for (db, line, refused) in [
        (1, "get k", None),
        (3, "set k v", None),
        (0, "get k", Some(0)),
        (0, "dbsize", Some(0)),
        (0, "ping", None),
        (0, "select 1", None),
        (1, "select 0", Some(1)),
        (1, "move k 3", Some(0)),
        (1, "swapdb 1 3", Some(0)),
        (1, "flushall", Some(0)),
        (1, "copy a b db 3", None),
        (1, "copy a b db 2", Some(4)),
        (1, "copy a db", None),
    ] {
        let expected = refused.map(Denied::Database);
        assert_eq!(denied(&acl, &registry, db, line), expected, "{line} in {db}");
    }
    assert_eq!(set(&acl, "$ALL").expect("good rules").after.own().databases().describe(), "");
    assert_eq!(denied(&acl, &registry, 0, "get k"), None);
}

#[test]
fn databases_in_words_of_valkey_may_be_gone_between() {
    let (acl, registry) = (acl(), Registry::build());
    set(&acl, "+@all ~* &* db=3,1,3").expect("good rules");
    for (db, line, refused) in [
        (1, "get k", None),
        (0, "get k", Some(0)),
        (0, "select 3", None),
        (1, "select 2", Some(1)),
        (1, "select 16", None),
        (1, "select x", None),
        (1, "move k 3", None),
        (1, "move k 2", Some(2)),
        (0, "move k 3", Some(0)),
        (0, "swapdb 1 3", None),
        (1, "swapdb 1 2", Some(2)),
        (1, "copy a b replace db 3", None),
        (1, "copy a b db 1 db 2", Some(6)),
        (0, "copy a b db 1", Some(0)),
        (1, "flushall", Some(0)),
        (1, "flushdb", None),
        (0, "watch k", Some(0)),
        (0, "info", None),
    ] {
        let expected = refused.map(Denied::Database);
        assert_eq!(denied(&acl, &registry, db, line), expected, "{line} in {db}");
    }
    let all: Vec<String> = (0..16).map(|db| db.to_string()).collect();
    set(&acl, &format!("db={}", all.join(","))).expect("good rules");
    assert_eq!(denied(&acl, &registry, 0, "flushall"), None);
    // The command decides where a selector has it in no database.
    set(&acl, "reset (db=1 +get ~*) (+set ~*)").expect("good rules");
    assert_eq!(denied(&acl, &registry, 0, "get k"), Some(Denied::Command));
    assert_eq!(denied(&acl, &registry, 1, "get k"), None);
    for (rules, described, shown) in [
        ("db=2,1", "db=1,2", "db=1,2"),
        ("db=2 db=1", "db=1", "db=1"),
        ("alldbs", "", "alldbs"),
        ("db=1 alldbs", "", "alldbs"),
        ("resetdbs", "resetdbs", ""),
        ("db=1 $2 $0", "$0 $2", "$0 $2"),
        ("$1 db=0", "db=0", "db=0"),
        ("$1 $ALL", "", ""),
    ] {
        let user = set(&acl, &format!("reset {rules}")).expect("good rules").after;
        let known = user.own().databases();
        assert_eq!((known.describe().as_str(), known.show().as_str()), (described, shown), "{rules}");
        let again = set(&acl, &format!("reset {described}")).expect("good rules").after;
        assert_eq!(again.describe(), user.describe(), "{rules}");
    }
    for (rule, fault) in [
        ("db=", "Syntax error"),
        ("db=,0", "Syntax error"),
        ("db=0,", "Syntax error"),
        ("db=0,,1", "Syntax error"),
        ("db=x", "Syntax error"),
        ("db=+1", "Syntax error"),
        ("db=-1", "The provided database ID is out of range"),
        ("db=12345678987654321", "The provided database ID is out of range"),
    ] {
        let error = set(&acl, rule).err().unwrap_or_default();
        assert_eq!(error, format!("Error in ACL SETUSER modifier '{rule}': {fault}"));
    }
}

#[test]
fn files_are_read_as_a_whole_or_not_at_all() {
    let acl = acl();
    let good = b"# people\nuser alice on >x +@all ~*\n\r\nUSER bob (+set %W~w*) (+get %R~r*)\r\n  #user c on";
    let users = acl.read(good, "f", false).expect("a good file");
    assert_eq!(users.len(), 2);
    assert_eq!(users.get("bob").map(|bob| bob.selectors().len()), Some(3));
    for (bad, fault) in [
        ("user a on\nuser a off", "WARNING: Duplicate user 'a' found on line 2."),
        ("hello", "f:1 should start with user keyword followed by the username."),
        ("user", "should start with user keyword"),
        ("user a +nosuch", "f:1: Error in applying operation '+nosuch': Unknown command"),
        ("user a >secret nonsense", "f:1: Syntax error."),
        ("user a (+get", "Unmatched parenthesis"),
    ] {
        let error = acl.read(bad.as_bytes(), "f", false).err().unwrap_or_default();
        assert!(error.contains(fault) && !error.contains("secret"), "{bad}: {error}");
    }
}

#[test]
fn lines_of_the_configuration_leave_out_what_requirepass_says() {
    let acl = acl();
    acl.set_default_password(b"x");
    assert!(acl.config_lines("x").is_empty());
    assert_eq!(acl.config_lines("").len(), 1);
    set(&acl, "on nopass +get ~a*").expect("good rules");
    let line = "user u on nopass sanitize-payload ~a* resetchannels -@all +get";
    assert_eq!(acl.config_lines("x"), [line]);
    let words = line
        .strip_prefix("user ")
        .unwrap_or_default()
        .replace(' ', &darter_config::USER_SEPARATOR.to_string());
    let other = Acl::new(rows(&Registry::build()), 16);
    other.load_configured(std::slice::from_ref(&words), false).expect("a good line");
    assert_eq!(other.config_lines(""), [line]);
    assert!(
        other.load_configured(&[words.clone(), words], false).is_err_and(|e| e.contains("Duplicate user"))
    );
}

#[test]
fn what_a_permit_covers_is_allowed_and_simple_rules_are_covered() {
    let (acl, registry) = (acl(), Registry::build());
    let mut rng = Rng::new(11);
    let pieces = [
        "+@all",
        "+@read",
        "+@write",
        "-@string",
        "-get",
        "-del",
        "~*",
        "~a*",
        "%R~r*",
        "%W~w*",
        "~b",
        "~[ab]?",
        "$1",
        "(+@all ~x)",
        "+set",
        "+move",
    ];
    let calls = [
        "get",
        "set",
        "set x",
        "set x get",
        "incr",
        "del",
        "mget",
        "hset f v",
        "lpop",
        "bitfield get u8 0",
        "move 1",
        "expire 10",
        "exists",
        "sadd m",
    ];
    let mut covered = 0;
    for _ in 0..3000 {
        let rules: Vec<&str> =
            (0..1 + rng.below(4)).map(|_| pieces[rng.below(pieces.len() as u64) as usize]).collect();
        let Ok(changed) = set(&acl, &format!("reset on {}", rules.join(" "))) else { continue };
        for call in calls {
            for key in ["a", "abc", "r1", "w1", "b", "x", ""] {
                let (name, rest) = call.split_once(' ').unwrap_or((call, ""));
                let words = [name, key].into_iter().chain(rest.split(' ').filter(|word| !word.is_empty()));
                let words: Vec<&[u8]> = words.map(str::as_bytes).collect();
                let owned = OwnedArgs::from_slices(&words);
                let entry = commands::find_command(&registry, owned.args()).expect("a command");
                if !entry.is_single_of(words.len() as u32) {
                    continue;
                }
                let permit = changed.after.permit(acl.catalog(), acl.catalog().row(entry.id));
                let is_covered = permit.is_some_and(|permit| permit.covers(words[1], words.len()));
                let checked = CheckedCall { command: entry.id, args: owned.args(), db: 1 };
                let is_allowed = changed.after.check(acl.catalog(), checked).is_ok();
                assert!(is_allowed || !is_covered, "{rules:?} {call} {key}");
                covered += usize::from(is_covered);
            }
        }
    }
    assert!(covered > 5_000, "{covered}");
    set(&acl, "reset on +@all -@dangerous ~app:* ~key:* resetchannels").expect("good rules");
    let user = acl.user("u").expect("the user");
    for name in ["get", "set", "hset", "zadd", "incr", "del", "exists", "lpush"] {
        let entry = commands::find_command(&registry, OwnedArgs::from_slices(&[name.as_bytes()]).args());
        let permit =
            user.permit(acl.catalog(), acl.catalog().row(entry.expect("a command").id)).expect("a permit");
        assert!(permit.covers(b"key:1", 3) && !permit.covers(b"kez:1", 3), "{name}");
    }
}
