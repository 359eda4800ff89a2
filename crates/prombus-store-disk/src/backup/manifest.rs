//! The manifest of a backup: which files it consists of.

use crate::backup::fingerprint::fingerprint_of;
use crate::disk::{Disk, is_full};
use crate::folder::{BACKUP, FileKind};
use crate::paged::damaged;
use prombus_core::{CopyFile, FileFingerprint};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_128;

const FIRST_LINE: &str = "prombus backup, format 1";
/// No manifest is longer than this: it would be one of millions of files.
const MAX_BYTES: u64 = 1 << 30;

/// What a backup consists of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// How often a backup was made into this folder; 0 as long as none was finished.
    pub generation: u64,
    /// The files by name.
    pub files: BTreeMap<String, Listed>,
}

/// A file of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Its length.
    pub bytes: u64,
    /// Its fingerprint.
    pub fingerprint: FileFingerprint,
}

impl Manifest {
    /// The manifest of a generation that consists of these files. Names are checked: they come from elsewhere, and say where
    /// something is written.
    pub fn new(generation: u64, files: &[CopyFile]) -> Result<Self, String> {
        let mut listed = BTreeMap::new();
        for CopyFile { name, bytes, fingerprint } in files {
            if !FileKind::of(name).is_some_and(FileKind::is_content) {
                return Err(format!("{name:?} is no file of a data folder; is the hub a newer version?"));
            }
            if listed.insert(name.clone(), Listed { bytes: *bytes, fingerprint: *fingerprint }).is_some() {
                return Err(format!("{name} is listed twice"));
            }
        }
        if !listed.contains_key(crate::folder::FORMAT) {
            return Err("the file FORMAT is not listed".to_owned());
        }
        Ok(Self { generation, files: listed })
    }

    fn to_text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\ngeneration {}\n", self.generation);
        for (name, Listed { bytes, fingerprint }) in &self.files {
            text.push_str(&format!("{fingerprint} {bytes} {name}\n"));
        }
        let end = xxh3_128(text.as_bytes());
        text.push_str(&format!("end {end:032x}\n"));
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let (content, end) = text.strip_suffix('\n')?.rsplit_once("\nend ")?;
        if format!("{:032x}", xxh3_128(format!("{content}\n").as_bytes())) != end {
            return None;
        }
        let mut lines = content.lines();
        let generation = lines.nth(1)?.strip_prefix("generation ")?.parse().ok()?;
        let file = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let (fingerprint, bytes) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let name = words.next().filter(|name| FileKind::of(name).is_some_and(FileKind::is_content))?;
            Some((name.to_owned(), Listed { bytes, fingerprint }))
        };
        Some(Self { generation, files: lines.map(file).collect::<Option<_>>()? })
    }

    /// Reads the manifest of a folder; `None` where it is no backup.
    pub fn read(disk: &dyn Disk, dir: &Path) -> io::Result<Option<Self>> {
        let file = match disk.open_to_read(&dir.join(BACKUP)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = vec![0; file.len()?.min(MAX_BYTES) as usize];
        let len = file.read_at(&mut bytes, 0)?;
        bytes.truncate(len);
        // Something of the user's own is left alone.
        if !bytes.starts_with(FIRST_LINE.as_bytes()) {
            return Ok(None);
        }
        let parsed = str::from_utf8(&bytes).ok().and_then(Self::parse);
        let unreadable = || damaged("it does not say which files the backup consists of".to_owned());
        parsed.ok_or_else(unreadable).map(Some)
    }

    /// Puts the manifest in place, durably: from then on, this is what the folder is.
    pub fn write(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let (path, tmp) = (dir.join(BACKUP), dir.join(format!("{BACKUP}.tmp")));
        let file = disk.create(&tmp)?;
        let filled = file.write_at(self.to_text().as_bytes(), 0).and_then(|()| file.sync());
        if let Err(error) = filled {
            if is_full(&error) {
                // What it took is given back at the next try otherwise.
                let _ = disk.remove(&tmp);
            }
            return Err(error);
        }
        disk.rename(&tmp, &path)?;
        disk.sync_dir(dir)
    }

    /// Whether a file that came in earlier is the one that is listed under this name.
    pub fn is_listed(&self, disk: &dyn Disk, name: &str, path: &Path) -> io::Result<bool> {
        let Some(Listed { bytes, fingerprint }) = self.files.get(name) else { return Ok(false) };
        let file = match disk.open_to_read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        Ok(file.len()? == *bytes && fingerprint_of(&*file, *bytes)? == *fingerprint)
    }
}

/// What a file of a generation is called before it has its own name.
pub fn name_in(generation: u64, name: &str) -> String {
    format!("{name}.g{generation}")
}

/// The generation of a file that came in, and the name that it is to have.
pub fn generation_of(name: &str) -> Option<(u64, &str)> {
    let (own, generation) = name.rsplit_once(".g")?;
    let generation: u64 = generation.parse().ok()?;
    let is_ours = FileKind::of(own).is_some_and(FileKind::is_content) && name_in(generation, own) == name;
    is_ours.then_some((generation, own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> CopyFile {
        CopyFile { name: name.to_owned(), bytes: 7, fingerprint: FileFingerprint(8) }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written_or_not_at_all() {
        let manifest = Manifest::new(3, &[file("FORMAT"), file("journal/0000000001.part")]).unwrap();
        let text = manifest.to_text();
        assert_eq!(Manifest::parse(&text), Some(manifest));
        assert_eq!(Manifest::parse(&Manifest::default().to_text()), Some(Manifest::default()));
        for end in 0..text.len() {
            assert_eq!(Manifest::parse(&text[..end]), None, "{end}");
        }
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] ^= 1;
            assert_eq!(str::from_utf8(&other).ok().and_then(Manifest::parse), None, "{at}");
        }
    }

    #[test]
    fn names_from_elsewhere_are_checked() {
        for bad in
            ["LOCK", "BACKUP", "../x", "/etc/passwd", "journal/../FORMAT", "journal/1.part", "x.tmp", ""]
        {
            assert!(Manifest::new(1, &[file("FORMAT"), file(bad)]).is_err(), "{bad}");
        }
        assert!(Manifest::new(1, &[file("FORMAT"), file("FORMAT")]).is_err());
        assert!(Manifest::new(1, &[]).is_err());
        assert_eq!(generation_of("FORMAT.g12"), Some((12, "FORMAT")));
        for other in ["FORMAT", "FORMAT.g", "FORMAT.g01", "LOCK.g1", "x.g1", "FORMAT.g1.tmp"] {
            assert_eq!(generation_of(other), None, "{other}");
        }
    }
}
