//! Values that are built from files, and rebuilt when the files change.
//!
//! A dedicated thread checks the files, and nothing waits for it after the first read: a file system that does not
//! respond blocks no request, no connection and no shutdown.

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

/// How often the files are checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a check may take before a warning is logged; at startup, it is not waited for any longer.
const LOOK_TIME: Duration = Duration::from_secs(5);
/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads the contents of files, in their order.
type Make<T> = Box<dyn Fn(&[Vec<u8>]) -> Result<T, String> + Send>;

/// A value that is built from files.
pub(crate) struct Reloaded<T> {
    current: Arc<Mutex<Current<T>>>,
    /// The number of times the value has changed. Its sender is gone if it cannot change.
    pub changes: watch::Receiver<u64>,
    names: String,
    /// Requests an immediate check of the files, and confirms it. The watcher ends when this is dropped.
    #[cfg_attr(not(test), expect(dead_code, reason = "it is there to be dropped"))]
    watcher: mpsc::Sender<mpsc::Sender<()>>,
}

struct Current<T> {
    value: Arc<T>,
    /// When the current check of the files began, if there is one.
    looking: Option<Instant>,
    /// Whether a warning about its duration was logged.
    told: bool,
}

/// What shows that a file has changed.
type Stamp = Option<(SystemTime, u64)>;

impl<T: Send + Sync + 'static> Reloaded<T> {
    /// Reads the files for the first time. Later, invalid files leave the value unchanged.
    pub fn open(
        files: Vec<PathBuf>,
        make: impl Fn(&[Vec<u8>]) -> Result<T, String> + Send + 'static,
    ) -> Result<Self, String> {
        let names = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
        let (watcher, asks) = mpsc::channel();
        let (made, opened) = mpsc::channel();
        let (changed, changes) = watch::channel(0);
        let mut watch =
            Watch { names: names.clone(), files, make: Box::new(make), seen: Vec::new(), trouble: None };
        let run = move || {
            let current = match watch.open() {
                Ok(current) => current,
                // The receiver may be gone.
                Err(error) => return drop(made.send(Err(error))),
            };
            let _ = made.send(Ok(current.clone()));
            // Without files, nothing can change.
            if !watch.files.is_empty() {
                watch.run(&current, &changed, &asks);
            }
        };
        let spawned = std::thread::Builder::new().name("files".into()).spawn(run);
        spawned.map_err(|error| format!("no thread can be started to read {names}: {error}"))?;
        match opened.recv_timeout(LOOK_TIME) {
            Ok(made) => made.map(|current| Self { current, changes, names, watcher }),
            Err(_) => {
                Err(format!("{names} could not be read within {LOOK_TIME:?}: does the file system respond?"))
            }
        }
    }

    /// The value as the files had it about a second ago.
    pub fn get(&self) -> Arc<T> {
        let mut current = self.current.lock();
        let hangs = current.looking.is_some_and(|since| since.elapsed() > LOOK_TIME);
        if hangs && !std::mem::replace(&mut current.told, true) {
            tracing::error!(files = %self.names, "cannot be checked: the file system does not respond; the previous contents stay in use");
        }
        current.value.clone()
    }
}

/// Checks the files.
struct Watch<T> {
    names: String,
    files: Vec<PathBuf>,
    make: Make<T>,
    seen: Vec<Stamp>,
    /// The last error, which is logged once.
    trouble: Option<String>,
}

impl<T> Watch<T> {
    fn open(&mut self) -> Result<Arc<Mutex<Current<T>>>, String> {
        // Stamped before they are read, so that a change in between is noticed next time.
        self.seen = stamps(&self.files);
        let value = Arc::new((self.make)(&read(&self.files)?)?);
        Ok(Arc::new(Mutex::new(Current { value, looking: None, told: false })))
    }

    /// Checks until nobody needs the value any more.
    fn run(
        mut self,
        current: &Mutex<Current<T>>,
        changed: &watch::Sender<u64>,
        asks: &mpsc::Receiver<mpsc::Sender<()>>,
    ) {
        loop {
            let asked = match asks.recv_timeout(LOOK_EVERY) {
                Ok(asked) => Some(asked),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            current.lock().looking = Some(Instant::now());
            let made = self.look();
            let mut current = current.lock();
            (current.looking, current.told) = (None, false);
            if let Some(value) = made {
                current.value = Arc::new(value);
                // A reader that sees the new version gets the new value.
                changed.send_modify(|version| *version += 1);
            }
            if let Some(asked) = asked {
                // The requester may be gone.
                let _ = asked.send(());
            }
        }
    }

    /// The value, if the files have changed and are valid.
    fn look(&mut self) -> Option<T> {
        let now = stamps(&self.files);
        if now == self.seen {
            return None;
        }
        // A file that temporarily cannot be read is retried; an invalid one is not.
        let made = read(&self.files).and_then(|texts| {
            self.seen = now;
            (self.make)(&texts)
        });
        let files = &self.names;
        match made {
            Ok(value) => {
                self.trouble = None;
                tracing::info!(%files, "reloaded, because it has changed");
                Some(value)
            }
            Err(error) => {
                if self.trouble.as_ref() != Some(&error) {
                    tracing::error!(%files, %error, "has changed and cannot be used; the previous contents stay in use");
                    self.trouble = Some(error);
                }
                None
            }
        }
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
    let one =
        |file: &PathBuf| read_one(file).map_err(|error| format!("cannot read {}: {error}", file.display()));
    files.iter().map(one).collect()
}

/// Reads a regular file, and nothing else: pipes and devices may never end.
fn read_one(file: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe without a writer would block too.
    let opened = rustix::fs::open(file, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let opened = File::from(opened);
    if !opened.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = Vec::new();
    if opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut text)? as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("it is larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
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

    impl<T: Send + Sync + 'static> Reloaded<T> {
        /// The value as the files have it now.
        pub(crate) fn look_now(&self) -> Arc<T> {
            let (done, when_done) = mpsc::channel();
            self.watcher.send(done).unwrap();
            when_done.recv().unwrap();
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

    #[test]
    fn only_regular_files_of_a_sane_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let why = |file: &Path| Reloaded::open(vec![file.to_owned()], text).err().unwrap();
        assert!(why(folder.path()).contains("not a regular file"));
        assert!(why(Path::new("/dev/zero")).contains("not a regular file"));
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        assert!(why(&pipe).contains("not a regular file"));
        let large = folder.path().join("large");
        File::create(&large).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
        assert!(why(&large).contains("larger than"));
    }

    #[test]
    fn a_file_that_becomes_a_pipe_leaves_things_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pipe) = (folder.path().join("f"), folder.path().join("p"));
        std::fs::write(&file, "one").unwrap();
        let value = Reloaded::open(vec![file.clone()], text).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::fs::rename(&pipe, &file).unwrap();
        assert_eq!(*value.look_now(), "one");
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, "second").unwrap();
        assert_eq!(*value.look_now(), "second");
    }
}
