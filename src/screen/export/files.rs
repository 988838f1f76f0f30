//! Writes exports to numbered files that do not exist yet, on a thread that the screen does not wait for.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use attnscope_compute::error::{Error, Result};
use attnscope_report::Pair;
use attnscope_worker::caught;

use super::Export;
use crate::state::written::Written;

/// Maximum number of exports with one name in a directory.
const MOST: usize = 10_000;

impl Export {
    /// Writes picture and data to a directory under the first number free for both; never overwrites a file.
    ///
    /// # Errors
    /// When nothing can be written there; no file is left behind.
    pub fn write(&self, directory: &Path) -> Result<Written> {
        for n in 1..=MOST {
            let number = if n == 1 {
                String::new()
            } else {
                format!("-{n}")
            };
            let path = |ending: &str| directory.join(format!("{}{number}.{ending}", self.name));
            let written = Written {
                svg: path("svg"),
                csv: path("csv"),
            };
            let is_taken = || {
                let paths = [&written.svg, &written.csv];
                paths.iter().any(|path| path.symlink_metadata().is_ok())
            };
            if is_taken() {
                continue;
            }
            let pair = Pair::open([&written.svg, &written.csv], false);
            match pair.and_then(|pair| pair.write([&self.picture, &self.csv])) {
                Ok(()) => return Ok(written),
                // Another process took this number: try the next.
                Err(_) if is_taken() => {}
                Err(e) => return Err(e),
            }
        }
        let problem = format!("{MOST} exports of this name are there already");
        Err(Error::file(directory.join(&self.name), problem))
    }
}

/// Writes exports one after another on its own thread; dropping it first finishes all queued ones.
pub struct Writer {
    exports: Option<Sender<Export>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread, which calls `told` with the result of each export.
    pub fn start(directory: PathBuf, told: impl Fn(Result<Written>) + Send + 'static) -> Self {
        let (exports, received) = mpsc::channel::<Export>();
        let body = move || {
            for export in received {
                let name = export.name.clone();
                let written = caught(|| export.write(&directory))
                    .unwrap_or_else(|said| Err(Error::file(directory.join(name), said)));
                match &written {
                    Ok(Written { svg, .. }) => log::info!("wrote {}", svg.display()),
                    Err(e) => log::warn!("{e}"),
                }
                told(written);
            }
        };
        let thread = thread::Builder::new()
            .name("exports".to_owned())
            .spawn(body);
        if let Err(e) = &thread {
            log::error!("no thread for exports: {e}");
        }
        Self {
            exports: Some(exports),
            thread: thread.ok(),
        }
    }

    pub fn write(&self, export: Export) {
        if let Some(exports) = &self.exports {
            // If the thread is gone, nobody can write; that was logged.
            let _ = exports.send(export);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.exports.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export() -> Export {
        Export {
            name: "gpt2-head".to_owned(),
            picture: b"<svg/>".to_vec(),
            csv: b"part\n".to_vec(),
            lacks_letters: false,
        }
    }

    #[test]
    fn both_files_get_the_first_number_free_for_both() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let first = export().write(directory.path()).expect("writes");
        assert_eq!(first.svg, at("gpt2-head.svg"));
        assert_eq!(first.csv, at("gpt2-head.csv"));
        std::fs::write(&first.svg, "changed since").expect("writes");
        // Only one of the two names is taken.
        std::fs::write(at("gpt2-head-2.csv"), "another's").expect("writes");
        let next = export().write(directory.path()).expect("writes");
        assert_eq!(next.svg, at("gpt2-head-3.svg"));
        assert_eq!(std::fs::read(&first.svg).expect("reads"), b"changed since");
        let n_files = std::fs::read_dir(directory.path()).expect("lists").count();
        assert_eq!(n_files, 5);
    }

    #[test]
    fn an_unwritable_directory_is_reported_in_one_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let missing = directory.path().join("missing");
        let said = export().write(&missing).expect_err("refused").to_string();
        assert!(said.contains("gpt2-head.svg: cannot be written"), "{said}");
        assert_eq!(said.lines().count(), 1);
    }

    #[test]
    fn dropping_the_writer_first_writes_all_queued_exports() {
        let directory = tempfile::tempdir().expect("a directory");
        let (sender, told) = mpsc::channel();
        let writer = Writer::start(directory.path().to_owned(), move |written| {
            drop(sender.send(written));
        });
        (0..5).for_each(|_| writer.write(export()));
        drop(writer);
        let written: Vec<Written> = told.iter().map(|w| w.expect("writes")).collect();
        assert_eq!(written.len(), 5);
        assert!(written.iter().all(|w| w.svg.exists() && w.csv.exists()));
    }
}
