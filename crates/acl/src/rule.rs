//! Rules: the words of ACL SETUSER, of `user` lines and of access files, and what each does to a user.
//!
//! Total: any bytes are a rule or a fault. `print(parse(x))` is a fixed point, see the tests.

use darter_command::call_keys::KeyAccess;
use darter_command::category::Categories;
use darter_command::reader;

use crate::catalog::Catalog;
use crate::selector::Selector;
use crate::user::{Hash, User, hash};

/// Error of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleFault {
    /// It is no rule.
    Syntax,
    /// No command or category of that name.
    Unknown,
    /// A key pattern after all keys.
    KeysAfterAll,
    /// A channel pattern after all channels.
    ChannelsAfterAll,
    /// The password to remove is not there.
    NoSuchPassword,
    /// No SHA-256 in lower-case hexadecimal.
    BadHash,
    /// A number no database can have.
    BadDatabase,
    /// A first argument of a subcommand.
    ArgumentOfSubcommand,
}

impl RuleFault {
    /// What clients are told, in Redis' words.
    pub const fn text(self) -> &'static str {
        match self {
            RuleFault::Syntax => "Syntax error",
            RuleFault::Unknown => "Unknown command or category name in ACL",
            RuleFault::KeysAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any \
                 effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleFault::ChannelsAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                 effect. Try 'resetchannels' to start with an empty list of channels"
            }
            RuleFault::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            RuleFault::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            RuleFault::BadDatabase => "The provided database ID is out of range",
            RuleFault::ArgumentOfSubcommand => "Allowing first-arg of a subcommand is not supported",
        }
    }
}

/// What rules refer to.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// The commands.
    pub catalog: &'a Catalog,
    /// `acl-pubsub-default` is `allchannels`.
    pub all_channels: bool,
}

impl Rules<'_> {
    /// Applies one rule; on a fault the user may have changed in part.
    pub fn apply(self, user: &mut User, rule: &[u8]) -> Result<(), RuleFault> {
        let is = |word: &str| reader::is(rule, word);
        match rule {
            [] => {}
            _ if is("on") => user.is_on = true,
            _ if is("off") => user.is_on = false,
            _ if is("skip-sanitize-payload") => user.skips_sanitize = true,
            _ if is("sanitize-payload") => user.skips_sanitize = false,
            _ if is("nopass") || is("resetpass") => {
                user.passwords.clear();
                user.needs_no_password = is("nopass");
            }
            _ if is("clearselectors") => user.clear_selectors(),
            _ if is("reset") => user.reset(self.catalog, self.all_channels),
            [b'>', password @ ..] => user.add_password(hash(password)),
            [b'#', digits @ ..] => user.add_password(parse_hash(digits)?),
            [b'<', password @ ..] => remove_password(user, hash(password))?,
            [b'!', digits @ ..] => remove_password(user, parse_hash(digits)?)?,
            [b'(', inside @ .., b')'] => {
                let mut selector = Selector::empty(self.catalog, self.all_channels);
                for rule in words(inside) {
                    self.apply_to(&mut selector, rule)?;
                }
                user.add_selector(selector);
            }
            _ => self.apply_to(user.own_mut(), rule)?,
        }
        Ok(())
    }

    fn apply_to(self, selector: &mut Selector, rule: &[u8]) -> Result<(), RuleFault> {
        let is = |word: &str| reader::is(rule, word);
        match rule {
            _ if is("allkeys") || is("~*") => selector.set_all_keys(),
            _ if is("resetkeys") => selector.reset_keys(),
            _ if is("allchannels") || is("&*") => selector.set_all_channels(true),
            _ if is("resetchannels") => selector.set_all_channels(false),
            _ if is("allcommands") || is("+@all") => selector.set_all_commands(true),
            _ if is("nocommands") || is("-@all") => selector.set_all_commands(false),
            _ if is("$all") => selector.databases_mut().set_all(),
            _ if is("alldbs") => selector.databases_mut().name_all(),
            _ if is("resetdbs") => selector.databases_mut().name(Vec::new()),
            [b'd' | b'D', b'b' | b'B', b'=', list @ ..] => {
                let dbs = list.split(|&byte| byte == b',').map(database).collect::<Result<_, _>>()?;
                selector.databases_mut().name(dbs);
            }
            [b'$', digits @ ..] => {
                let db = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'));
                selector.databases_mut().add(db.and_then(|text| text.parse().ok()).ok_or(RuleFault::Syntax)?);
            }
            [b'~' | b'%', ..] => add_keys(selector, rule)?,
            [b'&', pattern @ ..] => {
                if selector.has_all_channels() {
                    return Err(RuleFault::ChannelsAfterAll);
                }
                selector.add_channels(whole(pattern)?);
            }
            [sign @ (b'+' | b'-'), b'@', name @ ..] => {
                let category = Categories::named(name).ok_or(RuleFault::Unknown)?;
                let name = format!("@{}", String::from_utf8_lossy(name));
                selector.set_category(self.catalog, &name, category, *sign == b'+');
            }
            [b'+' | b'-', name @ ..] if is_elsewhere(name) => {}
            [b'+', name @ ..] => self.add_command(selector, name)?,
            [b'-', name @ ..] => {
                let name = std::str::from_utf8(name).map_err(|_| RuleFault::Unknown)?;
                let row = self.catalog.find(name).ok_or(RuleFault::Unknown)?;
                selector.set_command(self.catalog, row, false);
            }
            _ => return Err(RuleFault::Syntax),
        }
        Ok(())
    }

    /// `+command`, `+container|sub`, or `+command|argument` of a command that is no container.
    fn add_command(self, selector: &mut Selector, name: &[u8]) -> Result<(), RuleFault> {
        let name = std::str::from_utf8(name).map_err(|_| RuleFault::Unknown)?;
        let Some((head, last)) = name.rsplit_once('|') else {
            let row = self.catalog.find(name).ok_or(RuleFault::Unknown)?;
            selector.set_command(self.catalog, row, true);
            return Ok(());
        };
        let row = self.catalog.find(head).ok_or(RuleFault::Unknown)?;
        if head.contains('|') {
            return Err(RuleFault::ArgumentOfSubcommand);
        }
        if last.is_empty() || whole(last.as_bytes()).is_err() {
            return Err(RuleFault::Syntax);
        }
        if row.subs.is_empty() || row.is_open {
            selector.add_first_arg(self.catalog, row, &last.to_ascii_lowercase());
        } else {
            let sub = self.catalog.find(name).ok_or(RuleFault::Unknown)?;
            selector.set_command(self.catalog, sub, true);
        }
        Ok(())
    }
}

/// Commands of Dragonfly that are missing here: rules of its users about them are taken, and change nothing.
const ELSEWHERE: &[&str] = &["addreplicaof", "dfly", "dflymigrate", "rm", "shrink"];

/// Returns true if `name` is one of these, or one of its subcommands.
fn is_elsewhere(name: &[u8]) -> bool {
    let head = name.split(|&byte| byte == b'|').next().unwrap_or_default();
    ELSEWHERE.iter().any(|known| reader::is(head, known))
}

/// `~pattern`, `%R~pattern`, `%W~pattern`, `%RW~pattern`; without `~` the pattern is empty.
fn add_keys(selector: &mut Selector, rule: &[u8]) -> Result<(), RuleFault> {
    if selector.has_all_keys() {
        return Err(RuleFault::KeysAfterAll);
    }
    let at = rule.iter().position(|&byte| byte == b'~').unwrap_or(rule.len());
    let mut access = KeyAccess { reads: at == 0, writes: at == 0 };
    for letter in rule.get(1..at).unwrap_or_default() {
        let place = match letter.to_ascii_lowercase() {
            b'r' => &mut access.reads,
            b'w' => &mut access.writes,
            _ => return Err(RuleFault::Syntax),
        };
        if std::mem::replace(place, true) {
            return Err(RuleFault::Syntax);
        }
    }
    if access == KeyAccess::default() {
        return Err(RuleFault::Syntax);
    }
    selector.add_keys(whole(rule.get(at + 1..).unwrap_or_default())?, access);
    Ok(())
}

/// One number of `db=`.
fn database(text: &[u8]) -> Result<usize, RuleFault> {
    let number = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'));
    let number: i128 = number.and_then(|text| text.parse().ok()).ok_or(RuleFault::Syntax)?;
    i32::try_from(number).ok().and_then(|db| usize::try_from(db).ok()).ok_or(RuleFault::BadDatabase)
}

fn parse_hash(digits: &[u8]) -> Result<Hash, RuleFault> {
    let mut bytes = [0; 32];
    let (pairs, rest) = digits.as_chunks::<2>();
    if pairs.len() != bytes.len() || !rest.is_empty() {
        return Err(RuleFault::BadHash);
    }
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(RuleFault::BadHash),
    };
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Ok(bytes)
}

fn remove_password(user: &mut User, hash: Hash) -> Result<(), RuleFault> {
    let at = user.passwords.iter().position(|known| *known == hash).ok_or(RuleFault::NoSuchPassword)?;
    user.passwords.remove(at);
    Ok(())
}

/// `text` if it can stand in a line of rules.
fn whole(text: &[u8]) -> Result<&[u8], RuleFault> {
    if has_spaces(text) { Err(RuleFault::Syntax) } else { Ok(text) }
}

/// Whether a name or pattern could not be written in a file of rules.
pub fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|&byte| is_space(byte) || byte == 0)
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// The words of a line.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| is_space(byte)).filter(|word| !word.is_empty())
}

/// Joins the words of selectors that were given in several. Errors: the word that opens one that never closes.
pub fn merge_selectors<'a>(rules: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, &'a [u8]> {
    let mut merged: Vec<Vec<u8>> = Vec::new();
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for rule in rules {
        match &mut open {
            Some((_, joined)) => {
                joined.push(b' ');
                joined.extend_from_slice(rule);
                if rule.ends_with(b")") {
                    merged.extend(open.take().map(|(_, joined)| joined));
                }
            }
            None if rule.starts_with(b"(") && !rule.ends_with(b")") => open = Some((rule, rule.to_vec())),
            None => merged.push(rule.to_vec()),
        }
    }
    match open {
        Some((first, _)) => Err(first),
        None => Ok(merged),
    }
}
