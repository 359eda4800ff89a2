//! A folder of schemas as it is on disk: for a hub that starts, and for `prombus schema lint`.

use prombus_schema::BYTES_LIMIT;
use prombus_schema::lint::File;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// The most files that are read.
const MAX_FILES: usize = 100_000;
/// How deep folders are looked into: one below those in which something can be in its place.
const MAX_DEPTH: usize = 3;

/// All files of a folder, by path. What cannot be read says so.
pub fn read(folder: &Path) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    look(folder, "", &mut files)?;
    if files.len() > MAX_FILES {
        return Err(io::Error::other(format!(
            "it has more than {MAX_FILES} files: is it a folder of schemas?"
        )));
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn look(folder: &Path, path: &str, files: &mut Vec<File>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Hidden ones are nobody's schemas, and may be large, as .git is.
        if name.starts_with('.') {
            continue;
        }
        if files.len() > MAX_FILES {
            return Ok(());
        }
        let inner = if path.is_empty() { name } else { format!("{path}/{name}") };
        // Links are followed: where there can be schemas, no circle is longer than the depth.
        let is_folder = fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir());
        if is_folder && inner.split('/').count() <= MAX_DEPTH {
            let before = files.len();
            if let Err(error) = look(&entry.path(), &inner, files) {
                files.truncate(before);
                files.push(File { path: inner, text: Err(format!("the folder cannot be read: {error}")) });
            }
        } else {
            files.push(File { path: inner, text: text(&entry.path()) });
        }
    }
    Ok(())
}

/// The text of a file, as far as one longer than any schema is known as such.
fn text(file: &Path) -> Result<String, String> {
    // A pipe would be waited for.
    let is_file = fs::metadata(file).map_err(|error| format!("the file cannot be read: {error}"))?.is_file();
    if !is_file {
        return Err("this is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    let most = BYTES_LIMIT as u64 + 1;
    fs::File::open(file)
        .and_then(|file| file.take(most).read_to_end(&mut bytes))
        .map_err(|error| format!("the file cannot be read: {error}"))?;
    if bytes.len() > BYTES_LIMIT {
        return Err(format!("the file is larger than {BYTES_LIMIT} bytes, which a schema may have"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line =
            1 + memchr::memchr_iter(b'\n', &error.as_bytes()[..error.utf8_error().valid_up_to()]).count();
        format!("the file is not UTF-8 in line {line}")
    })
}
