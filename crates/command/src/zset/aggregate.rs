//! How the scores of a member in several sorted sets become one: WEIGHTS and AGGREGATE.
//!
//! Called by ZUNION and its kin, in one go or in slices.

/// How the scores of a member in several inputs become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aggregate {
    /// Their sum.
    Sum,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// How many inputs have the member, each counting as its weight.
    Count,
}

impl Aggregate {
    /// What a score counts.
    pub(crate) fn weighted(self, score: f64, weight: f64) -> f64 {
        if self == Aggregate::Count { weight } else { score * weight }
    }

    /// As [`Aggregate::weighted`], for the first input that has the member.
    pub(crate) fn first(self, score: f64, weight: f64) -> f64 {
        number_or_zero(self.weighted(score, weight))
    }

    /// The score of a member with another one that counts so much.
    pub(crate) fn add(self, total: f64, score: f64) -> f64 {
        match self {
            Aggregate::Sum | Aggregate::Count => number_or_zero(total + score),
            Aggregate::Min => {
                if score < total {
                    score
                } else {
                    total
                }
            }
            Aggregate::Max => {
                if score > total {
                    score
                } else {
                    total
                }
            }
        }
    }
}

/// Infinities of both signs make 0, as does nothing times infinity.
fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}
