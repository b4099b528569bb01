//! DEBUG DIGEST and DIGEST-VALUE: a number for a whole data set, the same whatever the order of keys and members. Redis
//! computes the same one, so that the two can be compared.

use darter_base::sha1::{self, sha1};
use darter_store::rdb::{self, RdbSource};
use darter_store::{Shard, Type};
use darter_wire::{Args, Reply};

use crate::spec::{Flags, Group, Keys, Marks, Reach, Spec};
use crate::{Ctx, DataCommand, Fault};

/// DEBUG DIGEST.
pub const DIGEST: DataCommand = DataCommand {
    spec: Spec::other("debug|digest", 2)
        .mark(Marks::DEBUG)
        .flag(FLAGS)
        .reach(Reach::All)
        .doc(Group::Server, "1.0.0", "", "Outputs a signature of all data.")
        .cost("O(N) over the size of the data"),
    run: digest,
};

/// DEBUG DIGEST-VALUE.
pub const DIGEST_VALUE: DataCommand = DataCommand {
    spec: Spec { keys: Keys::Range { first: 2, last: -1, step: 1 }, ..Spec::other("debug|digest-value", -2) }
        .mark(Marks::DEBUG)
        .flag(FLAGS)
        .doc(Group::Server, "5.0.0", "[key ...]", "Outputs a signature of each value.")
        .cost("O(N) over the size of the values"),
    run: digest_value,
};

const FLAGS: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);

/// A signature under construction.
#[derive(Clone, Copy, Default)]
struct DigestOutput([u8; sha1::LEN]);

impl DigestOutput {
    /// Adds `bytes` in a way that forgets the order.
    fn add(&mut self, bytes: &[u8]) {
        self.0.iter_mut().zip(sha1(bytes)).for_each(|(byte, other)| *byte ^= other);
    }

    /// Adds `bytes` in a way that keeps the order.
    fn mix(&mut self, bytes: &[u8]) {
        self.add(bytes);
        self.0 = sha1(&self.0);
    }
}

/// A record's value in the form of RDB files, with the other facts that the digest needs.
struct DigestValue {
    kind: Type,
    bytes: Vec<u8>,
    has_deadline: bool,
    /// Members have deadlines, encoded as in the type.
    has_member_deadlines: bool,
}

/// The types of RDB files whose members have deadlines.
const RDB_HASH_WITH_TTL: u8 = 24;
const RDB_SET_WITH_TTL: u8 = 32;

fn digest(ctx: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (dbs_len, now_ms) = (ctx.dbs_len, ctx.now_ms);
    let mut sum = DigestOutput::default();
    for db in 0..dbs_len {
        let mut names: Vec<Vec<u8>> = Vec::new();
        ctx.each_part(|_, part| names_of(&part.shard, db, now_ms, &mut names));
        if !names.is_empty() {
            sum.mix(&(db as u32).to_be_bytes());
        }
        for name in names {
            let mut one = DigestOutput::default();
            one.mix(&name);
            if let Some(value) = value_at(ctx, db, &name)? {
                add_value(&mut one, &value).ok_or(UNREADABLE)?;
            }
            sum.add(&one.0);
        }
    }
    reply.status(sha1::hex(&sum.0));
    Ok(())
}

const UNREADABLE: Fault = Fault::text("ERR the digest of a value could not be computed");

fn names_of(shard: &Shard, db: usize, now_ms: u64, names: &mut Vec<Vec<u8>>) {
    shard.each(db, |record| {
        if !record.is_expired(now_ms) {
            names.push(record.key().to_vec());
        }
    });
}

fn digest_value(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let db = ctx.db;
    reply.array(args.len().saturating_sub(2));
    for name in args.iter().skip(2) {
        let mut one = DigestOutput::default();
        if let Some(value) = value_at(ctx, db, name)? {
            add_value(&mut one, &value).ok_or(UNREADABLE)?;
        }
        reply.status(sha1::hex(&one.0));
    }
    Ok(())
}

fn value_at(ctx: &mut Ctx<'_>, db: usize, name: &[u8]) -> Result<Option<DigestValue>, Fault> {
    let place = ctx.at_db(db, name);
    let Some(kind) = place.kind() else { return Ok(None) };
    let mut bytes = Vec::new();
    let mut has_member_deadlines = false;
    match place.object() {
        Some((object, arena)) => {
            has_member_deadlines = matches!(
                rdb::type_of(object),
                RDB_HASH_WITH_TTL | RDB_SET_WITH_TTL | rdb::TYPE_ZSET_WITH_TTL
            );
            rdb::write_object(object, arena, &mut bytes);
        }
        None => rdb::write_text(
            &mut bytes,
            &place.text()?.map(|text| text.bytes().into_owned()).unwrap_or_default(),
        ),
    }
    Ok(Some(DigestValue { kind, bytes, has_deadline: place.deadline_ms().is_some(), has_member_deadlines }))
}

/// Adds a value; `None` if it cannot be read back, which would be our error.
fn add_value(digest: &mut DigestOutput, value: &DigestValue) -> Option<()> {
    digest.mix(&(value.kind as u32).to_be_bytes());
    let mut source = RdbSource::new(&value.bytes);
    match value.kind {
        Type::String => digest.mix(&source.text().ok()?),
        Type::List => {
            for _ in 0..source.count().ok()? {
                digest.mix(&source.text().ok()?);
            }
        }
        Type::Set => {
            for _ in 0..source.count().ok()? {
                let mut one = DigestOutput::default();
                one.add(&source.text().ok()?);
                if value.has_member_deadlines && source.count().ok()? > 0 {
                    one.mix(b"!!expire!!");
                }
                digest.0.iter_mut().zip(one.0).for_each(|(byte, other)| *byte ^= other);
            }
        }
        Type::Zset => {
            for _ in 0..source.count().ok()? {
                let mut one = DigestOutput::default();
                one.mix(&source.text().ok()?);
                let score = f64::from_le_bytes(source.array().ok()?);
                one.mix(seventeen_digits(score).as_bytes());
                if value.has_member_deadlines && source.count().ok()? > 0 {
                    one.mix(b"!!expire!!");
                }
                digest.add(&one.0);
            }
        }
        Type::Hash => {
            if value.has_member_deadlines {
                source.array::<8>().ok()?;
            }
            for _ in 0..source.count().ok()? {
                let has_deadline = value.has_member_deadlines && source.count().ok()? > 0;
                let mut one = DigestOutput::default();
                one.mix(&source.text().ok()?);
                one.mix(&source.text().ok()?);
                if has_deadline {
                    one.add(b"!!hexpire!!");
                }
                digest.add(&one.0);
            }
        }
        _ => digest.mix(&value.bytes),
    }
    if value.has_deadline {
        digest.add(b"!!expire!!");
    }
    Some(())
}

/// A score as C prints it with `%.17g`.
fn seventeen_digits(score: f64) -> String {
    let scientific = format!("{score:.16e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..17).contains(&exponent) {
        let decimals = usize::try_from(16 - exponent).unwrap_or(0);
        return trimmed(&format!("{score:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::seventeen_digits;
    use crate::testing::Bed;

    #[test]
    fn digests_are_those_of_redis() {
        let mut bed = Bed::new();
        for line in ["set a 1", "set b hello ex 1000", "rpush l a b 3 c", "sadd s 1 2 3 x", "sadd si 5 7 9"] {
            bed.run(line);
        }
        bed.run("zadd z 1 a 0.1 b -inf c");
        bed.run("hset h f v g 2");
        assert_eq!(bed.run("debug digest"), "+d3cf92f8971b17440e584b5bb592716c577fd53c");
        let values = bed.run("debug digest-value b z none");
        let [b, z] = ["d037c4eb8a8b36b602fbced4000daeab0714c1e3", "366ae8c0260c2024754e896e600d3c44dfdbd7d6"];
        assert_eq!(values, format!("*3|+{b}|+{z}|+{}", "0".repeat(40)));
    }

    #[test]
    fn scores_are_printed_as_c_does() {
        for (score, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.1, "0.10000000000000001"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.5e-7, "1.4999999999999999e-07"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(seventeen_digits(score), text);
        }
    }

    #[test]
    fn members_with_deadlines_count() {
        let mut bed = Bed::new();
        bed.run("hset h f v g w");
        let before = bed.run("debug digest-value h");
        bed.run("hpexpire h 100000 fields 1 f");
        assert_ne!(bed.run("debug digest-value h"), before);
    }

    #[test]
    fn an_empty_data_set_has_no_digest_and_order_does_not_matter() {
        let (mut one, mut two) = (Bed::new(), Bed::new());
        assert_eq!(one.run("debug digest"), format!("+{}", "0".repeat(40)));
        for line in ["set a 1", "set b 2", "sadd s x y z", "hset h f v g w", "zadd z 1 a 2.5 b"] {
            one.run(line);
        }
        for line in ["zadd z 2.5 b 1 a", "hset h g w f v", "sadd s z y x", "set b 2", "set a 1"] {
            two.run(line);
        }
        assert_eq!(one.run("debug digest"), two.run("debug digest"));
        let before = one.run("debug digest-value s h");
        one.run("sadd s more");
        assert_ne!(one.run("debug digest-value s h"), before);
        assert_ne!(one.run("debug digest"), two.run("debug digest"));
    }
}
