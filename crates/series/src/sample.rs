//! A sample, and the policy for two of the same time.

/// A value at a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Unix time in milliseconds.
    pub time: u64,
    /// The value; NaN is a value.
    pub value: f64,
}

/// The only NaN that is stored, for any NaN written.
const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

impl Sample {
    /// A sample; every NaN is the same.
    pub fn new(time: u64, value: f64) -> Sample {
        Sample { time, value: if value.is_nan() { NAN } else { value } }
    }
}

/// The effect of a second sample of the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DuplicatePolicy {
    /// The second is refused.
    Block = 1,
    /// The second replaces the first.
    Last = 2,
    /// The first stays.
    First = 3,
    /// The smaller stays.
    Min = 4,
    /// The larger stays.
    Max = 5,
    /// Their sum stays.
    Sum = 6,
}

/// A second sample of the same time is refused by the policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocked;

impl DuplicatePolicy {
    /// All policies.
    pub const ALL: [DuplicatePolicy; 6] = [
        DuplicatePolicy::Block,
        DuplicatePolicy::Last,
        DuplicatePolicy::First,
        DuplicatePolicy::Min,
        DuplicatePolicy::Max,
        DuplicatePolicy::Sum,
    ];

    /// The name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            DuplicatePolicy::Block => "block",
            DuplicatePolicy::Last => "last",
            DuplicatePolicy::First => "first",
            DuplicatePolicy::Min => "min",
            DuplicatePolicy::Max => "max",
            DuplicatePolicy::Sum => "sum",
        }
    }

    /// The policy of a name in any case.
    pub fn of_name(name: &[u8]) -> Option<DuplicatePolicy> {
        DuplicatePolicy::ALL.into_iter().find(|policy| name.eq_ignore_ascii_case(policy.name().as_bytes()))
    }

    /// The policy of its number in a file; 0 means no policy.
    pub fn of_number(number: u64) -> Option<DuplicatePolicy> {
        DuplicatePolicy::ALL.into_iter().find(|&policy| policy as u64 == number)
    }

    /// The value that stays. Fails if the policy refuses the second.
    pub fn combine(self, first: f64, second: f64) -> Result<f64, Blocked> {
        let one_is_nan = first.is_nan() != second.is_nan();
        match self {
            DuplicatePolicy::Block => Err(Blocked),
            DuplicatePolicy::Min | DuplicatePolicy::Max | DuplicatePolicy::Sum if one_is_nan => Err(Blocked),
            _ if second.is_nan() => Ok(first),
            _ if first.is_nan() => Ok(second),
            DuplicatePolicy::Last => Ok(second),
            DuplicatePolicy::First => Ok(first),
            DuplicatePolicy::Min => Ok(if first < second { first } else { second }),
            DuplicatePolicy::Max => Ok(if first > second { first } else { second }),
            DuplicatePolicy::Sum => Ok(first + second),
        }
    }
}
