//! What is made from files, and made again when they change.

use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The files are looked at no more often than this.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Reads the contents of files, in their order.
type Make<T> = Box<dyn Fn(&[Vec<u8>]) -> Result<T, String> + Send + Sync>;

/// A value that is made from files.
pub(crate) struct Reloaded<T> {
    files: Vec<PathBuf>,
    make: Make<T>,
    current: Mutex<Current<T>>,
}

struct Current<T> {
    value: Arc<T>,
    looked: Instant,
    stamps: Vec<Stamp>,
}

/// What tells that a file is another one than before.
type Stamp = Option<(SystemTime, u64)>;

impl<T> Reloaded<T> {
    /// Reads the files for the first time. Later on, files that make no sense leave things as they are.
    pub fn open(
        files: Vec<PathBuf>,
        make: impl Fn(&[Vec<u8>]) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let make: Make<T> = Box::new(make);
        // Stamped before they are read: a change in between is seen next time.
        let stamps = stamps(&files);
        let value = Arc::new(make(&read(&files)?)?);
        let current = Mutex::new(Current { value, looked: Instant::now(), stamps });
        Ok(Self { files, make, current })
    }

    /// The value as the files have it, within a second.
    pub fn get(&self) -> Arc<T> {
        let mut current = self.current.lock();
        if current.looked.elapsed() >= LOOK_EVERY {
            current.looked = Instant::now();
            let now = stamps(&self.files);
            if now != current.stamps {
                let files =
                    self.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
                // A file that cannot be read for a moment is tried again; one that makes no sense is not.
                let made = read(&self.files).map(|texts| {
                    current.stamps = now;
                    (self.make)(&texts)
                });
                match made.flatten() {
                    Ok(value) => {
                        current.value = Arc::new(value);
                        tracing::info!(%files, "read again, because it has changed");
                    }
                    Err(error) => {
                        tracing::error!(%files, %error, "has changed and cannot be used; what was read before holds")
                    }
                }
            }
        }
        current.value.clone()
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |file: &PathBuf| {
        let about = std::fs::metadata(file).ok()?;
        Some((about.modified().ok()?, about.len()))
    };
    files.iter().map(stamp).collect()
}

fn read(files: &[PathBuf]) -> Result<Vec<Vec<u8>>, String> {
    let one = |file: &PathBuf| {
        std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
    };
    files.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(files: &[Vec<u8>]) -> Result<String, String> {
        match files[0].as_slice() {
            b"bad" => Err("bad".into()),
            text => Ok(String::from_utf8_lossy(text).into_owned()),
        }
    }

    impl<T> Reloaded<T> {
        /// As if the last look were long ago.
        pub(crate) fn look_now(&self) -> Arc<T> {
            self.current.lock().looked -= LOOK_EVERY;
            self.get()
        }
    }

    #[test]
    fn a_change_is_seen_and_a_bad_one_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        assert!(Reloaded::open(vec![file.clone()], text).is_err(), "it is not there");
        std::fs::write(&file, "bad").unwrap();
        assert!(Reloaded::open(vec![file.clone()], text).is_err());
        std::fs::write(&file, "one").unwrap();
        let value = Reloaded::open(vec![file.clone()], text).unwrap();
        for (content, seen) in [("second", "second"), ("bad", "second"), ("third", "third")] {
            std::fs::write(&file, content).unwrap();
            assert_eq!(*value.look_now(), seen);
        }
        std::fs::remove_file(&file).unwrap();
        assert_eq!(*value.look_now(), "third");
    }
}
