//! The process that reads and decodes the pages of a full read, and does nothing else: the floor of a reload.

use anyhow::{Context, Result, bail};
use etcd_client::{Client, GetOptions};

use super::child::{Answer, Order, Parent};
use super::load::PREFIX;
use super::options::Reading;
use super::system::cpu_microseconds;

/// Keys of one page, as a replica asks for them.
const PAGE: i64 = 5_000;

/// A page may be larger than gRPC's 4 MiB.
const DECODE_LIMIT: usize = 64 << 20;

/// Runs until the parent is done.
///
/// # Errors
/// When the parent cannot be talked to, or etcd.
pub async fn run(options: Reading) -> Result<()> {
    let client = Client::connect([&options.etcd], None).await.context("connect to etcd")?;
    let mut parent = Parent::new();
    parent.tell(&Answer::Ready).await?;
    while let Some(order) = parent.order().await? {
        let Order::Read = order else { bail!("it only reads") };
        let own = std::process::id();
        let before = cpu_microseconds(own)?;
        let entries = read(&client).await?;
        parent.tell(&Answer::Read(entries, cpu_microseconds(own)? - before)).await?;
    }
    Ok(())
}

async fn read(client: &Client) -> Result<usize> {
    let end = format!("{PREFIX}0"); // '0' follows '/'
    let (mut from, mut revision, mut entries) = (format!("{PREFIX}/").into_bytes(), 0, 0);
    loop {
        let options = GetOptions::new().with_range(end.as_str()).with_limit(PAGE).with_revision(revision);
        let mut kv = client.kv_client().max_decoding_message_size(DECODE_LIMIT);
        let page = kv.get(from, Some(options)).await.context("read a page")?;
        revision = page.header().context("an answer without header")?.revision();
        entries += page.kvs().len();
        match page.kvs().last().filter(|_| page.more()) {
            Some(last) => from = [last.key(), &[0]].concat(),
            None => return Ok(entries),
        }
    }
}
