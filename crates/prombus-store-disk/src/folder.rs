//! Which files make a data folder: their names, and what each of them is.
//!
//! This is the only place that knows all of them, for `prombus check`, which finds the others, and for backups, which
//! consist of them.

use crate::journal::part::{PartName, index_part, index_path, part_of, part_path};
use crate::journal::position::Pos;
use crate::state::{checkpoint, rows};
use std::path::{Path, PathBuf};

/// The file that says which format a folder has.
pub const FORMAT: &str = "FORMAT";
/// The file that is locked, beside the folder itself.
pub const LOCK: &str = "LOCK";
/// The file that makes a folder a backup.
pub const BACKUP: &str = "BACKUP";
/// The file of zeros that keeps room back for cleaning.
pub const RESERVE: &str = "RESERVE";
/// The file that says from where the folder is being filled.
pub const MOVING: &str = "MOVING";
/// How the name of a file ends that is being written.
pub const UNFINISHED: &str = ".tmp";

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// It says which format the folder has.
    Format,
    /// It is locked by whoever uses the folder.
    Lock,
    /// It says which files are a backup.
    Backup,
    /// It keeps room back, and holds nothing.
    Reserve,
    /// It says from where the folder is being filled.
    Moving,
    /// A part of the journal.
    Part(PartName),
    /// The index of a part.
    Index(PartName),
    /// A checkpoint.
    State(Pos),
    /// A table.
    Table(u64),
    /// It was being written when the machine or the process went down.
    Unfinished,
}

impl FileKind {
    /// What the file with this name is, in the folder and with a `/` after each folder in it; `None` for one that does not
    /// belong there. Each file has exactly one name.
    pub fn of(name: &str) -> Option<Self> {
        let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
        if file.ends_with(UNFINISHED) && ["", JOURNAL, STATE].contains(&folder) {
            return Some(Self::Unfinished);
        }
        let kind = match (folder, file.rsplit_once('.')) {
            ("", None) => match file {
                FORMAT => Self::Format,
                LOCK => Self::Lock,
                BACKUP => Self::Backup,
                RESERVE => Self::Reserve,
                MOVING => Self::Moving,
                _ => return None,
            },
            (JOURNAL, Some((_, "part"))) => Self::Part(part_of(file)?),
            (JOURNAL, Some((_, "index"))) => Self::Index(index_part(file)?),
            (STATE, Some((_, "state"))) => Self::State(checkpoint::pos_of(file)?),
            (STATE, Some((_, "table"))) => Self::Table(rows::number_of(file)?),
            _ => return None,
        };
        (kind.name() == name).then_some(kind)
    }

    /// The name of the file; nothing for one that is unfinished.
    pub fn name(self) -> String {
        let here = Path::new("");
        let path = match self {
            Self::Format => return FORMAT.to_owned(),
            Self::Lock => return LOCK.to_owned(),
            Self::Backup => return BACKUP.to_owned(),
            Self::Reserve => return RESERVE.to_owned(),
            Self::Moving => return MOVING.to_owned(),
            Self::Unfinished => return String::new(),
            Self::Part(part) => part_path(here, part),
            Self::Index(part) => index_path(here, part),
            Self::State(pos) => checkpoint::path(here, pos),
            Self::Table(number) => rows::path(here, number),
        };
        path.to_string_lossy().into_owned()
    }

    /// Whether it is part of what a hub stores, and thus of a backup.
    pub fn is_content(self) -> bool {
        !matches!(self, Self::Lock | Self::Backup | Self::Reserve | Self::Moving | Self::Unfinished)
    }
}

const JOURNAL: &str = "journal";
const STATE: &str = "state";

/// The folders of a data folder, itself first, each with how the names of its files begin.
pub fn folders(dir: &Path) -> [(PathBuf, &'static str); 3] {
    [(dir.to_owned(), ""), (dir.join(JOURNAL), "journal/"), (dir.join(STATE), "state/")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_name() {
        for name in [
            "FORMAT",
            "LOCK",
            "BACKUP",
            "RESERVE",
            "MOVING",
            "journal/0000000001.part",
            "journal/0000000001-0000000002.part",
            "journal/0000000001.index",
            "state/0000000002.state",
            "state/0000000002-0000004096.state",
            "state/0000000007.table",
        ] {
            assert_eq!(FileKind::of(name).map(FileKind::name).as_deref(), Some(name));
        }
        assert_eq!(FileKind::of("journal/0000000001.tmp"), Some(FileKind::Unfinished));
        for name in [
            "",
            "/",
            "journal",
            "journal/",
            "../FORMAT",
            "/FORMAT",
            "format",
            "FORMAT/",
            "journal/FORMAT",
            "0000000001.part",
            "state/0000000001.part",
            "journal/1.part",
            "journal/+000000001.part",
            "journal/../journal/0000000001.part",
            "journal//0000000001.part",
            "other/1.tmp",
            "state/2.state",
            "state/0000000002-0000000064.state",
            "state/7.table",
            "state/0000000007.table\n",
        ] {
            assert_eq!(FileKind::of(name), None, "{name:?}");
        }
    }
}
