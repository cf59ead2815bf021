//! The command line of the soak, and what it comes down to.

use std::time::Duration;

use clap::Parser;

/// Keeps a real world going under faults and compares it with etcd again and again.
///
/// Starts etcd, two replicas and three nodes as processes of their own with a proxy on every connection between them,
/// changes RATE values a second, and breaks one thing after the other as the seed says: processes are killed, stopped
/// and restarted, connections frozen, cut, refused and delayed, etcd compacted and defragmented. About every two
/// minutes, and at the end, it is quiet for half a minute: everything heals, and what etcd, each replica and each
/// node hold is compared, key by key.
///
/// Ends with 0 when nothing differed and no guarantee was broken, 1 when something was (the folder with all logs
/// stays), 2 when it could not run. The last line of standard output is one JSON object; progress goes to standard
/// error.
///
/// Example: soak --minutes 30 --seed 7
#[derive(Debug, Clone, Parser)]
#[command(name = "soak", version, verbatim_doc_comment, max_term_width = 100)]
pub struct Arguments {
    /// For how long.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub minutes: u64,
    /// What breaks when, and what is written. Drawn and printed when it is not given.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Members of etcd: 1 or 3.
    #[arg(long, default_value_t = 3, value_parser = parse_members)]
    pub members: usize,
    /// Changes a second.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub rate: u64,
    /// Over so many keys.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(10..=100_000))]
    pub keys: u64,
}

/// How a soak goes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What everything that is drawn is drawn from.
    pub seed: u64,
    /// Members of etcd.
    pub members: usize,
    /// Replicas.
    pub replicas: usize,
    /// Nodes.
    pub nodes: usize,
    /// Changes a second.
    pub rate: u64,
    /// Keys.
    pub keys: u64,
    /// Times of faults, each followed by a quiet time.
    pub rounds: u64,
    /// How long a time of faults is.
    pub busy: Duration,
    /// How long a quiet time is at least.
    pub quiet: Duration,
    /// The least and the most between the beginnings of two faults.
    pub gap: (Duration, Duration),
    /// The most that a fault lasts.
    pub lasts: Duration,
    /// Between two looks into all that a node holds.
    pub look_inside: Duration,
}

/// Of a round of the command line.
const BUSY: Duration = Duration::from_secs(85);
const QUIET: Duration = Duration::from_secs(30);

// === impl Arguments ===

impl Arguments {
    /// What they come down to; draws a seed if none is given.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let whole = Duration::from_secs(60 * self.minutes);
        let rounds = whole.as_secs().div_ceil((BUSY + QUIET).as_secs());
        let round = whole / u32::try_from(rounds).unwrap_or(u32::MAX);
        Settings {
            seed: self.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
            members: self.members,
            replicas: 2,
            nodes: 3,
            rate: self.rate,
            keys: self.keys,
            rounds,
            busy: round.saturating_sub(QUIET),
            quiet: QUIET,
            gap: (Duration::from_secs(5), Duration::from_secs(30)),
            lasts: Duration::from_secs(12),
            look_inside: Duration::from_secs(10),
        }
    }
}

fn parse_members(text: &str) -> Result<usize, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        _ => Err("etcd has 1 or 3 members here".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn settings(arguments: &[&str]) -> Settings {
        Arguments::try_parse_from([&["soak"], arguments].concat()).unwrap().settings()
    }

    #[test]
    fn rounds_fill_the_time_and_none_is_much_longer_than_two_minutes() {
        Arguments::command().debug_assert();
        for minutes in [1, 2, 10, 30, 600] {
            let settings = settings(&["--minutes", &minutes.to_string()]);
            let round = settings.busy + settings.quiet;
            let whole = round * u32::try_from(settings.rounds).unwrap();
            assert!(whole.abs_diff(Duration::from_secs(60 * minutes)) < Duration::from_secs(1), "{whole:?}");
            assert!(round <= BUSY + QUIET && settings.busy >= settings.gap.1, "{round:?}");
        }
        assert_eq!(settings(&["--seed", "7"]).seed, 7);
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        for wrong in ["--minutes=0", "--members=2", "--rate=0", "--keys=1"] {
            assert!(Arguments::try_parse_from(["soak", wrong]).is_err(), "{wrong}");
        }
    }
}
