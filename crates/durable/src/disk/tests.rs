//! A disk that fails when told to.

use std::sync::{Arc, Mutex};

use super::*;

#[derive(Debug)]
struct Orders {
    room: u64,
    refuse_truncation: bool,
    refuse_sync: bool,
    refuse_creation: bool,
    syncs: u64,
}

/// The operating system's files behind a room that runs out and calls that are refused.
#[derive(Clone, Debug)]
pub(crate) struct FaultyDisk(Arc<Mutex<Orders>>);

#[derive(Debug)]
struct FaultyMedium {
    medium: Box<dyn Medium>,
    orders: FaultyDisk,
}

impl Default for FaultyDisk {
    fn default() -> Self {
        let orders = Orders {
            room: u64::MAX,
            refuse_truncation: false,
            refuse_sync: false,
            refuse_creation: false,
            syncs: 0,
        };
        Self(Arc::new(Mutex::new(orders)))
    }
}

impl FaultyDisk {
    pub(crate) fn leave(&self, room: u64) {
        self.0.lock().unwrap().room = room;
    }

    pub(crate) fn refuse_truncation(&self, refuse: bool) {
        self.0.lock().unwrap().refuse_truncation = refuse;
    }

    pub(crate) fn refuse_sync(&self, refuse: bool) {
        self.0.lock().unwrap().refuse_sync = refuse;
    }

    pub(crate) fn refuse_creation(&self, refuse: bool) {
        self.0.lock().unwrap().refuse_creation = refuse;
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.0.lock().unwrap().syncs
    }

    fn wrap(&self, medium: Box<dyn Medium>) -> Box<dyn Medium> {
        Box::new(FaultyMedium { medium, orders: self.clone() })
    }
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Medium>> {
        if self.0.lock().unwrap().refuse_creation {
            return Err(io::ErrorKind::StorageFull.into());
        }
        SystemDisk.create(path).map(|medium| self.wrap(medium))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Medium>> {
        SystemDisk.open(path).map(|medium| self.wrap(medium))
    }
}

impl Medium for FaultyMedium {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut orders = self.orders.0.lock().unwrap();
        let fits = (bytes.len() as u64).min(orders.room);
        orders.room = orders.room.saturating_sub(fits);
        self.medium.write_at(&bytes[..fits as usize], offset)?;
        if fits < bytes.len() as u64 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        if self.orders.0.lock().unwrap().refuse_truncation {
            return Err(io::Error::other("refused"));
        }
        self.medium.truncate(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut orders = self.orders.0.lock().unwrap();
        if orders.refuse_sync {
            return Err(io::Error::other("refused"));
        }
        orders.syncs += 1;
        self.medium.sync()
    }
}
