//! LOLWUT: a drawing that is never the same, and the version.

use darter_base::rng::Rng;
use darter_command::spec::Group;
use darter_command::{ArgReader, Fault, Flags, Spec};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::Caller;
use crate::thread_state::COMPAT_VERSION;

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[row(
    Spec::other("lolwut", -1).flag(Flags::READONLY).fast().doc(
        Group::Server,
        "5.0.0",
        "[VERSION version]",
        "Displays computer art and the server's version.",
    ),
    lolwut,
)];

/// Columns unless asked otherwise, and at most.
const WIDTH: i64 = 66;
const WIDTH_MAX: i64 = 1000;
/// Rows of water and sky.
const HEIGHT: usize = 9;

fn lolwut(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut reader = ArgReader::new(args, 1);
    let is_versioned = reader.take_with("version", 1);
    if is_versioned {
        reader.int()?;
    }
    let width = match reader.is_done() {
        false if is_versioned => reader.int()?,
        _ => WIDTH,
    };
    let mut rng = Rng::new(crate::clock::unix_ms() ^ caller.session.id);
    let mut text = river(&mut rng, width.clamp(1, WIDTH_MAX) as usize);
    text.push_str(&format!(
        "\nA darter dives into its own reflection. Darter ver. {} (Redis ver. {COMPAT_VERSION})\n",
        env!("CARGO_PKG_VERSION")
    ));
    reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

/// Hills above a river, the river a shaken copy of them.
fn river(rng: &mut Rng, width: usize) -> String {
    let mut level = HEIGHT as u64 / 2;
    let hills: Vec<u64> = (0..width)
        .map(|_| {
            level = (level + rng.below(3)).saturating_sub(1).clamp(1, HEIGHT as u64 - 1);
            level
        })
        .collect();
    let mut text = String::new();
    for row in (0..HEIGHT as u64).rev() {
        text.extend(hills.iter().map(|&hill| match hill.cmp(&row) {
            std::cmp::Ordering::Greater => '█',
            std::cmp::Ordering::Equal => '▄',
            std::cmp::Ordering::Less if row + 2 >= HEIGHT as u64 && rng.below(60) == 0 => '✦',
            std::cmp::Ordering::Less => ' ',
        }));
        text.push('\n');
    }
    for row in 0..HEIGHT as u64 / 2 {
        text.extend(hills.iter().map(|&hill| {
            let is_shaken = rng.below(HEIGHT as u64) < row;
            if hill > row * 2 && !is_shaken {
                '▒'
            } else if rng.below(5) == 0 {
                '~'
            } else {
                ' '
            }
        }));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drawing_has_its_size_whatever_the_dice_say() {
        for seed in 0..50 {
            let text = river(&mut Rng::new(seed), 40);
            assert_eq!(text.lines().count(), HEIGHT + HEIGHT / 2);
            assert!(text.lines().all(|line| line.chars().count() == 40));
        }
    }
}
