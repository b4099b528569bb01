//! Combining the scores of a member in several sorted sets: WEIGHTS and AGGREGATE.
//!
//! Called by ZUNION and similar commands, at once or in slices.

/// The function that combines the scores of a member in several inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aggregate {
    /// Their sum.
    Sum,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// Number of inputs that have the member, each counting as its weight.
    Count,
}

impl Aggregate {
    /// The weighted score.
    pub(crate) fn weighted(self, score: f64, weight: f64) -> f64 {
        if self == Aggregate::Count { weight } else { score * weight }
    }

    /// Like [`Aggregate::weighted`], for the first input that has the member.
    pub(crate) fn first(self, score: f64, weight: f64) -> f64 {
        number_or_zero(self.weighted(score, weight))
    }

    /// The score of a member combined with another weighted one.
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

/// 0 for NaN: a sum of both infinities, or zero times infinity.
fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}
