//! The file system a folder is on: which it is, what it outlives, and whether there is room.

use std::path::Path;

use tollgate_core::Finding;

use crate::error::{Result, Trouble};
use crate::folder::network_file_system;
use crate::sys::{self, Room};

/// The common ones by their magic numbers.
const KNOWN: [(u32, &str); 11] = [
    (0xef53, "ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683e, "Btrfs"),
    (0x2fc1_2fc1, "ZFS"),
    (0xf2f5_2010, "F2FS"),
    (0xca45_1a4e, "bcachefs"),
    (TMPFS, "tmpfs"),
    (RAMFS, "ramfs"),
    (OVERLAY, "overlayfs"),
    (0x4d44, "FAT"),
    (0x2011_bab0, "exFAT"),
];
const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58f6;
const OVERLAY: u32 = 0x794c_7630;

/// A folder with its counters, and a little for the locks themselves.
const ROOM_NEEDED: u64 = 1 << 20;
/// Nearly full is less than one part in so many.
const NEARLY: u64 = 20;

pub(super) fn look(folder: &Path, findings: &mut Vec<Finding>) -> Result<()> {
    findings.push(kind(sys::file_system(folder).map_err(Trouble::at(folder))?));
    let disk = sys::room(folder).map_err(Trouble::at(folder))?;
    if disk.read_only {
        findings.push(Finding::problem(
            "the file system is read-only",
            "taking a lock writes its claim and its token",
            "mount it read-write, or choose another folder with file:DIR",
        ));
        return Ok(());
    }
    findings.push(room(&disk));
    findings.extend(inodes(&disk));
    Ok(())
}

fn kind(kind: u32) -> Finding {
    if let Some(network) = network_file_system(kind) {
        return Finding::problem(
            format!("the folder is on {network}"),
            "locks of other machines or programs may not be visible there, so two holders could overlap; \
             tollgate refuses it",
            "choose a folder on a local disk with file:DIR, or a lock server",
        );
    }
    let name = KNOWN.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name);
    match kind {
        TMPFS | RAMFS => Finding::note(
            format!("the folder is on {}, which is memory", name.unwrap_or("tmpfs")),
            "the tokens start again at 1 after a reboot, and a resource that remembers larger tokens \
             refuses them",
            "if a resource checks tokens, choose a folder on a disk",
        ),
        OVERLAY => Finding::note(
            "the folder is on overlayfs, a container's own layer",
            "the folder is visible only in this container, and is deleted with it, tokens included",
            "to lock across containers, or to keep the tokens, use a folder on a volume that all of them \
             mount",
        ),
        _ => Finding::fine(match name {
            Some(name) => format!("the folder is on {name}, a local file system"),
            None => format!("the folder is on a local file system (type {kind:#x})"),
        }),
    }
}

fn room(disk: &Room) -> Finding {
    let free = format!("{} MiB of {} MiB are free", disk.free_bytes >> 20, disk.bytes >> 20);
    let advice = "free some space, or choose another folder with file:DIR";
    if disk.free_bytes == 0 {
        Finding::problem("the disk is full", "a lock that needs a new file cannot be taken", advice)
    } else if disk.free_bytes < ROOM_NEEDED || disk.free_bytes < disk.bytes / NEARLY {
        Finding::note(
            format!("the disk is nearly full: {free}"),
            "on a full disk no new lock can be taken",
            advice,
        )
    } else {
        Finding::fine(free)
    }
}

/// Some file systems do not count them.
fn inodes(disk: &Room) -> Option<Finding> {
    let (free, all) = (disk.free_files, disk.files);
    if all == 0 || (free > 0 && free >= all / NEARLY) {
        return None;
    }
    let what = format!("{free} of {all} inodes are free");
    let why = "every lock in use is a file and needs one";
    let advice = "delete files that are not needed, or choose another folder with file:DIR";
    Some(if free == 0 { Finding::problem(what, why, advice) } else { Finding::note(what, why, advice) })
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::*;

    #[test]
    fn file_systems_are_told_apart() {
        assert_eq!(kind(0xef53).severity, Severity::Fine);
        assert_eq!(kind(0x1234).severity, Severity::Fine);
        assert_eq!(kind(TMPFS).severity, Severity::Note);
        assert_eq!(kind(OVERLAY).severity, Severity::Note);
        assert_eq!(kind(0x6969).severity, Severity::Problem);
    }

    #[test]
    fn a_full_disk_is_a_problem_and_a_nearly_full_one_is_not() {
        let disk = |free_bytes, free_files| Room {
            read_only: false,
            bytes: 1 << 30,
            free_bytes,
            files: 1000,
            free_files,
        };
        assert_eq!(room(&disk(0, 1)).severity, Severity::Problem);
        assert_eq!(room(&disk(1 << 20, 1)).severity, Severity::Note);
        assert_eq!(room(&disk(1 << 29, 1)).severity, Severity::Fine);
        assert_eq!(inodes(&disk(0, 0)).unwrap().severity, Severity::Problem);
        assert_eq!(inodes(&disk(0, 10)).unwrap().severity, Severity::Note);
        assert_eq!(inodes(&disk(0, 500)), None);
        assert_eq!(inodes(&Room { files: 0, ..disk(0, 0) }), None);
    }
}
