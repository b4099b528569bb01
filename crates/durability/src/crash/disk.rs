//! A simulated disk: what the kernel shows of files, what of it is durable, and every change in between.
//!
//! A loss of power leaves each sector as it was at one of the moments since the file was last synced, the length likewise, and
//! of the changes of names any that no earlier one about the same name was lost before. Nothing is ever damaged otherwise.

use std::collections::{BTreeMap, BTreeSet};

use darter_base::rng::Rng;

/// A change of a file that is not durable.
#[derive(Clone, Debug)]
enum FileChange {
    Write { at: usize, bytes: Vec<u8> },
    Len(usize),
}

/// A file.
#[derive(Clone, Default, Debug)]
pub struct Inode {
    /// As processes see it.
    pub content: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<FileChange>,
    /// Bytes for which it has blocks.
    pub blocks: usize,
}

/// A change of the names in the folder that is not durable.
#[derive(Clone, Debug)]
enum Renaming {
    Create(String, usize),
    Remove(String),
    Rename(String, String),
}

/// The disk, with one folder.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk {
    pub inodes: Vec<Inode>,
    pub names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending: Vec<Renaming>,
    /// The folder is there,
    pub has_folder: bool,
    /// and its own name is durable.
    is_folder_durable: bool,
    /// Bytes of blocks that are free.
    pub room: usize,
}

pub const BLOCK: usize = 4096;

impl Inode {
    fn apply(bytes: &mut Vec<u8>, change: &FileChange) {
        match change {
            FileChange::Write { at, bytes: new } => {
                if bytes.len() < at + new.len() {
                    bytes.resize(at + new.len(), 0);
                }
                bytes[*at..at + new.len()].copy_from_slice(new);
            }
            FileChange::Len(len) => bytes.resize(*len, 0),
        }
    }

    fn change(&mut self, change: FileChange) {
        Inode::apply(&mut self.content, &change);
        self.pending.push(change);
    }

    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.change(FileChange::Write { at, bytes: bytes.to_vec() });
    }

    pub fn set_len(&mut self, len: usize) {
        self.change(FileChange::Len(len));
    }

    pub fn sync(&mut self) {
        for change in self.pending.drain(..) {
            Inode::apply(&mut self.durable, &change);
        }
    }

    /// A sync that failed: the kernel takes what it could not write for written.
    pub fn fail_sync(&mut self, rng: &mut Rng) {
        self.write_some(rng, BLOCK);
    }

    /// A loss of power, and the machine begins again.
    fn lose_power(&mut self, rng: &mut Rng, sector: usize) {
        self.write_some(rng, sector);
        self.content.clone_from(&self.durable);
        self.blocks = self.content.len().next_multiple_of(BLOCK);
    }

    /// Makes some of what is pending durable, and forgets the rest.
    fn write_some(&mut self, rng: &mut Rng, sector: usize) {
        let pending = std::mem::take(&mut self.pending);
        let moments = pending.len() as u64 + 1;
        let (mode, one) = (rng.below(8), rng.below(moments) as usize);
        let moment = |rng: &mut Rng| match mode {
            0 => 0,
            1 => pending.len(),
            2 | 3 => one,
            4 | 5 if rng.below(4) > 0 => one,
            _ => rng.below(moments) as usize,
        };
        let len_moment = moment(rng);
        let mut sectors: BTreeMap<usize, usize> = BTreeMap::new();
        let mut len = self.durable.len();
        for (at, change) in pending.iter().enumerate() {
            match change {
                FileChange::Write { at: begin, bytes } if !bytes.is_empty() => {
                    let end = begin + bytes.len();
                    for sector_at in begin / sector..=(end - 1) / sector {
                        let keeps = *sectors.entry(sector_at).or_insert_with(|| moment(rng));
                        if keeps > at {
                            let (from, to) =
                                ((sector_at * sector).max(*begin), ((sector_at + 1) * sector).min(end));
                            let piece = bytes[from - begin..to - begin].to_vec();
                            Inode::apply(&mut self.durable, &FileChange::Write { at: from, bytes: piece });
                        }
                    }
                    if len_moment > at {
                        len = len.max(end);
                    }
                }
                FileChange::Write { .. } => {}
                FileChange::Len(to) => {
                    for sector_at in to / sector..self.durable.len().div_ceil(sector) {
                        let keeps = *sectors.entry(sector_at).or_insert_with(|| moment(rng));
                        let from = (sector_at * sector).max(*to);
                        let end = ((sector_at + 1) * sector).min(self.durable.len());
                        if keeps > at && from < end {
                            self.durable[from..end].fill(0);
                        }
                    }
                    if len_moment > at {
                        len = *to;
                    }
                }
            }
        }
        self.durable.resize(len, 0);
    }
}

impl Renaming {
    fn names(&self) -> Vec<&String> {
        match self {
            Renaming::Create(name, _) | Renaming::Remove(name) => vec![name],
            Renaming::Rename(from, to) => vec![from, to],
        }
    }

    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Renaming::Create(name, inode) => drop(names.insert(name.clone(), *inode)),
            Renaming::Remove(name) => drop(names.remove(name)),
            Renaming::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
        }
    }
}

impl SimulatedDisk {
    pub fn with_room(room: usize) -> SimulatedDisk {
        SimulatedDisk { room, ..SimulatedDisk::default() }
    }

    fn rename_as(&mut self, change: Renaming) {
        change.apply(&mut self.names);
        self.pending.push(change);
    }

    pub fn create(&mut self, name: &str) -> usize {
        self.inodes.push(Inode::default());
        let inode = self.inodes.len() - 1;
        self.rename_as(Renaming::Create(name.to_owned(), inode));
        inode
    }

    pub fn remove(&mut self, name: &str) {
        if let Some(inode) = self.names.get(name) {
            self.room += self.inodes[*inode].blocks;
        }
        self.rename_as(Renaming::Remove(name.to_owned()));
    }

    pub fn rename(&mut self, from: &str, to: &str) {
        if let Some(inode) = self.names.get(to) {
            self.room += self.inodes[*inode].blocks;
        }
        self.rename_as(Renaming::Rename(from.to_owned(), to.to_owned()));
    }

    pub fn sync_names(&mut self) {
        self.pending.clear();
        self.durable_names.clone_from(&self.names);
    }

    pub fn sync_folder(&mut self) {
        self.is_folder_durable = self.has_folder;
    }

    /// Bytes of `wanted` more that a file may have up to `end`; takes them.
    pub fn take_room(&mut self, inode: usize, end: usize) -> bool {
        let end = end.next_multiple_of(BLOCK);
        let more = end.saturating_sub(self.inodes[inode].blocks);
        if more > self.room {
            return false;
        }
        self.room -= more;
        self.inodes[inode].blocks += more;
        true
    }

    /// Gives back what a file has behind `len`.
    pub fn give_room(&mut self, inode: usize, len: usize) {
        let kept = len.next_multiple_of(BLOCK).min(self.inodes[inode].blocks);
        self.room += self.inodes[inode].blocks - kept;
        self.inodes[inode].blocks = kept;
    }

    /// The machine loses its power.
    pub fn lose_power(&mut self, rng: &mut Rng) {
        let sector = if rng.below(2) == 0 { 512 } else { BLOCK };
        let mode = rng.below(5);
        let kept = rng.below(self.pending.len() as u64 + 1) as usize;
        let mut lost = BTreeSet::new();
        for (at, change) in std::mem::take(&mut self.pending).into_iter().enumerate() {
            let keeps = match mode {
                0 => false,
                1 => true,
                2 => at < kept,
                _ => rng.below(2) == 0,
            };
            if keeps && !change.names().iter().any(|name| lost.contains(*name)) {
                change.apply(&mut self.durable_names);
            } else {
                change.names().into_iter().for_each(|name| lost.extend([name.clone()]));
            }
        }
        if self.has_folder && !self.is_folder_durable {
            self.is_folder_durable = rng.below(2) == 0;
            self.has_folder = self.is_folder_durable;
            if !self.has_folder {
                self.durable_names.clear();
            }
        }
        self.names.clone_from(&self.durable_names);
        for inode in &mut self.inodes {
            inode.lose_power(rng, sector);
        }
        self.forget();
    }

    /// Frees files without a name: no process has them open.
    pub fn forget(&mut self) {
        let named: BTreeSet<usize> =
            self.names.values().chain(self.durable_names.values()).copied().collect();
        let pending: BTreeSet<usize> = self
            .pending
            .iter()
            .filter_map(|change| match change {
                Renaming::Create(_, inode) => Some(*inode),
                _ => None,
            })
            .collect();
        for (at, inode) in self.inodes.iter_mut().enumerate() {
            if !named.contains(&at) && !pending.contains(&at) && inode.content.capacity() > 0 {
                *inode = Inode::default();
            }
        }
    }
}
