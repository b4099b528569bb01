//! INFO commandstats, errorstats, latencystats: by command and by kind of error.

use std::collections::BTreeMap;

use super::{InfoSource, InfoText};
use crate::report::{CommandTotals, Slow, times_of};
use crate::sync::lock;

/// INFO commandstats: commands that were called.
pub fn commandstats(source: &InfoSource<'_>, out: &mut InfoText) {
    for entry in source.shared.registry.entries() {
        let totals = CommandTotals::of(source.shared, entry.id);
        if totals.calls == 0 && totals.failed == 0 && totals.rejected == 0 {
            continue;
        }
        let slow = match totals.slow {
            Slow { calls: 0, .. } => String::new(),
            Slow { calls, us, us_max } => {
                let [sum_ms, max_ms] = [us, us_max].map(|us| us as f64 / 1000.0);
                format!(
                    ",slowlog_count={calls},slowlog_time_ms_sum={sum_ms:.2},slowlog_time_ms_max={max_ms:.2}"
                )
            }
        };
        out.field(
            &format!("cmdstat_{}", entry.spec.name),
            format_args!(
                "calls={},usec={},usec_per_call={:.2},rejected_calls={},failed_calls={}{slow}",
                totals.calls,
                totals.us,
                totals.us_per_call(),
                totals.rejected,
                totals.failed
            ),
        );
    }
}

/// INFO errorstats: replies by the first word of the error.
pub fn errorstats(source: &InfoSource<'_>, out: &mut InfoText) {
    let errors: BTreeMap<String, u64> =
        lock(&source.shared.errors).iter().map(|(name, count)| (name.clone(), *count)).collect();
    for (name, count) in errors {
        out.field(&format!("errorstat_{name}"), format_args!("count={count}"));
    }
}

/// INFO latencystats: percentiles of the commands that were called.
pub fn latencystats(source: &InfoSource<'_>, out: &mut InfoText) {
    if !source.live.latency_tracking {
        return;
    }
    for entry in source.shared.registry.entries() {
        let Some((times, _)) = times_of(source.shared, entry.id) else { continue };
        let percentiles: Vec<String> = source
            .live
            .latency_percentiles
            .iter()
            .map(|percent| format!("p{percent}={:.3}", times.percentile_nanos(*percent) as f64 / 1000.0))
            .collect();
        out.field(&format!("latency_percentiles_usec_{}", entry.spec.name), percentiles.join(","));
    }
}
