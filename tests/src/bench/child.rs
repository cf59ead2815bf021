//! The child process with the receivers: this very program again, told what to do line by line.
//!
//! One line of JSON on its input is one [`Order`], one on its output one [`Answer`]. It ends when its input does, so
//! that none outlives the benchmark. What it writes to stderr goes through.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin};
use tokio::process::{ChildStdin, ChildStdout, Command};

use super::tally::Figures;

/// What the child is to do.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Order {
    /// Wait until every receiver has everything up to this revision, and tell the figures.
    Settle(u64),
    /// Read etcd and compare.
    Compare,
    /// Read and decode all pages once.
    Read,
    /// Send so many messages, one every so many nanoseconds.
    Send {
        /// How many.
        updates: u64,
        /// The time between two.
        pace_ns: u64,
    },
}

/// What the child says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Every receiver is there and holds what was there before.
    Ready,
    /// The figures, and how often a receiver lost its connection.
    Settled(Figures, u64),
    /// How many resources etcd has, and the first differences.
    Compared(usize, Vec<String>),
    /// How many entries were read, and the processor time that it took in microseconds.
    Read(usize, u64),
    /// All is sent; the number of the last message.
    Sent(u64),
    /// It cannot go on.
    Failed(String),
}

/// The parent's end.
#[derive(Debug)]
pub struct Child {
    /// Killed with this value.
    process: tokio::process::Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// The child's end.
#[derive(Debug)]
pub struct Parent {
    orders: Lines<BufReader<Stdin>>,
}

// === impl Child ===

impl Child {
    /// Starts this program again with these arguments, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start, or is not ready within `limit`.
    pub async fn start(arguments: &[&str], limit: Duration) -> Result<Self> {
        let own = std::env::current_exe().context("the path of this program")?;
        let mut command = Command::new(own);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().context("start the receivers")?;
        let input = process.stdin.take().context("its input is piped")?;
        let output = process.stdout.take().context("its output is piped")?;
        let mut child = Self { process, input, output: BufReader::new(output).lines() };
        match child.answer(limit).await? {
            Answer::Ready => Ok(child),
            other => bail!("the receivers are not ready: {other:?}"),
        }
    }

    /// The number of the process; nothing once it has ended.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Gives an order and waits for its answer.
    ///
    /// # Errors
    /// When there is none within `limit`, or the child cannot do it.
    pub async fn ask(&mut self, order: Order, limit: Duration) -> Result<Answer> {
        let mut line = serde_json::to_string(&order)?;
        line.push('\n');
        self.input.write_all(line.as_bytes()).await.context("tell the receivers")?;
        self.answer(limit).await
    }

    /// Ends it, and waits for its end.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub async fn end(mut self) -> Result<()> {
        drop(self.input);
        if tokio::time::timeout(Duration::from_secs(10), self.process.wait()).await.is_err() {
            self.process.kill().await.context("end the receivers")?;
        }
        Ok(())
    }

    async fn answer(&mut self, limit: Duration) -> Result<Answer> {
        let line = tokio::time::timeout(limit, self.output.next_line()).await;
        let line = line.with_context(|| format!("the receivers did not answer within {limit:?}"))??;
        match serde_json::from_str(&line.context("the receivers have ended")?)? {
            Answer::Failed(why) => bail!("the receivers: {why}"),
            answer => Ok(answer),
        }
    }
}

// === impl Parent ===

impl Parent {
    /// The process that started this one.
    #[must_use]
    pub fn new() -> Self {
        Self { orders: BufReader::new(tokio::io::stdin()).lines() }
    }

    /// The next order; nothing when the parent is done or gone.
    ///
    /// # Errors
    /// When it is none.
    pub async fn order(&mut self) -> Result<Option<Order>> {
        let line = self.orders.next_line().await?;
        line.map(|line| serde_json::from_str(&line).with_context(|| format!("no order: {line}"))).transpose()
    }

    /// Answers.
    ///
    /// # Errors
    /// When the parent is gone.
    pub async fn tell(&self, answer: &Answer) -> Result<()> {
        let mut line = serde_json::to_string(answer)?;
        line.push('\n');
        let mut output = tokio::io::stdout();
        output.write_all(line.as_bytes()).await?;
        Ok(output.flush().await?)
    }
}

impl Default for Parent {
    fn default() -> Self {
        Self::new()
    }
}
