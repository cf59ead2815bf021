//! Time limits towards an upstream.

use std::time::Duration;

use super::fields::Item;
use super::invalid::Invalid;

/// Longer limits than this many seconds (24 days, what nginx can hold in milliseconds) are refused.
const LONGEST: f64 = 2_147_483.0;

/// The three limits of one try; each is longer than zero. Shorter than a millisecond counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    /// To connect, with the TLS handshake.
    pub connect: Duration,
    /// Between two successful writes of the request.
    pub send: Duration,
    /// Between two successful reads of the answer.
    pub read: Duration,
}

// === impl Timeout ===

impl Timeout {
    /// What applies when neither route nor upstream says anything: 60 s each.
    pub const DEFAULT: Self = {
        let minute = Duration::from_secs(60);
        Self { connect: minute, send: minute, read: minute }
    };

    /// All three are required; the object is open, so other fields in it are none of ours.
    pub(super) fn parse(item: Item) -> Result<Self, Invalid> {
        let mut fields = item.object("a timeout")?;
        let mut limit = |name| seconds(fields.required(name)?);
        Ok(Self { connect: limit("connect")?, send: limit("send")?, read: limit("read")? })
    }
}

impl Default for Timeout {
    fn default() -> Self {
        Self::DEFAULT
    }
}

fn seconds(item: Item) -> Result<Duration, Invalid> {
    let path = item.path.clone();
    let seconds = item.number()?;
    if seconds <= 0.0 || seconds > LONGEST {
        return Err(Invalid::new(path, format!("is {seconds}; use seconds above 0 and up to {LONGEST}")));
    }
    Ok(Duration::from_secs_f64(seconds).max(Duration::from_millis(1)))
}
