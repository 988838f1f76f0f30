//! What outlives a session: prompts and the last view, in small files for each checkpoint in the state directory.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use attnscope_checkpoint::read_regular;
use attnscope_prompt::Source;
use attnscope_system::signals::Temporary;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::app::App;
use super::editor::as_text;
use super::known::Known;
use super::limits::Limits;
use super::look::Look;
use super::panes::Growths;

/// A larger file was not written by this program.
const LARGEST: usize = 4 << 20;
/// Number of checkpoints whose sessions are kept.
const MOST_SESSIONS: usize = 500;

/// File of the most recent session of all.
const LAST: &str = "last.json";

/// Mark that there was a session with a checkpoint of one's own.
const BEGUN: &str = "begun";

/// Files that store a checkpoint's prompts and session, and the name it was opened by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    prompts: PathBuf,
    session: PathBuf,
    checkpoint: Option<PathBuf>,
    limits: Limits,
}

/// State at the end of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The checkpoint or training; `None` for the built-in demo.
    pub checkpoint: Option<PathBuf>,
    pub look: Option<Look>,
    /// The prompt that ran: a text, or ids.
    pub prompt: Option<String>,
    #[serde(default)]
    pub is_ids: bool,
    #[serde(default)]
    pub is_picture: bool,
    /// Whether the prompt is the path of a file with rows of numbers.
    #[serde(default)]
    pub is_values: bool,
    #[serde(default)]
    pub bookmarks: Vec<Look>,
    /// Sizes that panes were given.
    #[serde(default)]
    pub panes: Growths,
}

impl Session {
    /// The session of an app as it ends; the caller fills in the checkpoint.
    pub fn of(app: &App) -> Self {
        let run = app.runs.a.as_ref();
        Self {
            checkpoint: None,
            look: run.map(|_| app.look()),
            prompt: run.map(|run| as_text(&run.source)),
            is_ids: run.is_some_and(|run| matches!(run.source, Source::Ids(_))),
            is_picture: run.is_some_and(|run| matches!(run.source, Source::Picture(_))),
            is_values: run.is_some_and(|run| matches!(run.source, Source::Values(_))),
            bookmarks: app.bookmarks.clone(),
            panes: app.panes.growths.clone(),
        }
    }
}

impl Remembered {
    /// The files for a checkpoint; `None` if no state directory is known.
    pub fn of(checkpoint: Option<&Path>, limits: Limits) -> Option<Self> {
        let named = match checkpoint {
            // One checkpoint has one file, whatever path names it.
            Some(path) => fs::canonicalize(path).ok()?,
            None => PathBuf::from("demo"),
        };
        let digest = Sha256::digest(named.as_os_str().as_encoded_bytes());
        let name: String = digest
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let directory = directory()?;
        let at = |room: &str| directory.join(room).join(&name).with_extension("json");
        Some(Self {
            prompts: at("prompts"),
            session: at("sessions"),
            checkpoint: checkpoint.map(|_| named),
            limits,
        })
    }

    /// The session that ended last, of any checkpoint.
    pub fn last() -> Option<Session> {
        read(&directory()?.join("sessions").join(LAST))
    }

    /// The last session with this checkpoint; its bookmarks are those of all sessions.
    pub fn session(&self) -> Option<Session> {
        read(&self.session)
    }

    /// Whether this is the first session with a checkpoint of one's own; it is no longer once this was asked.
    pub fn begins_first(&self) -> bool {
        let mark = self.session.with_file_name(BEGUN);
        self.checkpoint.is_some() && !mark.exists() && write(&mark, &true).is_ok()
    }

    /// Stores a session, as the last one with its checkpoint and the last of all.
    ///
    /// # Errors
    /// When the directory or a file cannot be written.
    pub fn keep(&self, session: Session) -> io::Result<()> {
        let session = Session {
            checkpoint: self.checkpoint.clone(),
            // Drop a prompt that is too long to have been typed.
            prompt: session
                .prompt
                .filter(|prompt| prompt.len() <= self.limits.prompt_bytes),
            ..session
        };
        write(&self.session, &session)?;
        let last = self.session.with_file_name(LAST);
        write(&last, &session)?;
        bound(self.session.parent().unwrap_or(Path::new(".")))
    }

    /// The prompts, the newest last; none if the file is missing or has other contents.
    pub fn read(&self) -> Vec<String> {
        read(&self.prompts).unwrap_or_default()
    }

    /// Adds a prompt as the last one. Reads the file again first, to keep prompts added by other sessions.
    ///
    /// # Errors
    /// When the directory or the file cannot be written.
    pub fn add(&self, prompt: &str) -> io::Result<()> {
        let mut known = Known {
            prompts: self.read(),
            limits: self.limits,
            ..Known::default()
        };
        if !known.remember(prompt) {
            return Ok(());
        }
        write(&self.prompts, &known.prompts)
    }
}

/// Parses one of our files; `None` if it is missing or has other contents.
fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let text = read_regular(path, LARGEST).ok()?;
    serde_json::from_slice(&text).ok()
}

fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    make_private(directory)?;
    let bytes = serde_json::to_vec(value)?;
    let mut temporary = Temporary::new_in(directory)?;
    temporary.as_file_mut().write_all(&bytes)?;
    temporary.persist(path, true)
}

/// Removes the oldest sessions of other checkpoints if there are too many.
fn bound(directory: &Path) -> io::Result<()> {
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(directory)?.flatten() {
        let path = entry.path();
        let is_session = path.extension().is_some_and(|ending| ending == "json");
        if is_session && !path.ends_with(LAST) {
            let changed = entry.metadata().and_then(|about| about.modified());
            files.push((changed.unwrap_or(SystemTime::UNIX_EPOCH), path));
        }
    }
    files.sort();
    let n_over = files.len().saturating_sub(MOST_SESSIONS);
    files
        .iter()
        .take(n_over)
        .try_for_each(|(_, path)| fs::remove_file(path))
}

/// Makes the directory readable by its owner only, because prompts are private.
fn make_private(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// `$XDG_STATE_HOME/attnscope`, or `~/.local/state/attnscope`; `None` where neither is known.
fn directory() -> Option<PathBuf> {
    let of = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    let base = of("XDG_STATE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| of("HOME").map(|home| home.join(".local/state")))?;
    Some(base.join("attnscope"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::panes::Growth;

    fn in_directory(directory: &Path) -> Remembered {
        Remembered {
            prompts: directory.join("state/prompts/x.json"),
            session: directory.join("state/sessions/x.json"),
            checkpoint: Some("runs/a".into()),
            limits: Limits::default(),
        }
    }

    #[test]
    fn the_first_session_with_a_checkpoint_of_ones_own_begins_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let own = in_directory(directory.path());
        let demo = Remembered {
            checkpoint: None,
            ..own.clone()
        };
        assert!(!demo.begins_first());
        assert!(own.begins_first());
        assert!(!own.begins_first());
    }

    #[test]
    fn a_session_is_read_back_as_it_ended_and_a_broken_file_reads_as_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let remembered = in_directory(directory.path());
        assert_eq!(remembered.session(), None);
        let look = Look {
            panel: "Head".to_owned(),
            stack: String::new(),
            layer: 1,
            head: 2,
            query: 3,
            key: 4,
            statistic: "entropy".to_owned(),
            map: "scores".to_owned(),
            log: false,
            numbers: true,
        };
        let growth = Growth {
            columns: 8,
            rows: -2,
        };
        let session = Session {
            checkpoint: None,
            look: Some(look.clone()),
            prompt: Some("the king".to_owned()),
            is_ids: false,
            is_picture: false,
            is_values: false,
            bookmarks: vec![look],
            panes: [("Head".to_owned(), [(0, growth)].into())].into(),
        };
        remembered.keep(session.clone()).expect("writes");
        let expected = Session {
            checkpoint: Some("runs/a".into()),
            ..session.clone()
        };
        assert_eq!(remembered.session(), Some(expected.clone()));
        let last = remembered.session.with_file_name(LAST);
        assert_eq!(read(&last), Some(expected));
        let long = Session {
            prompt: Some("x".repeat(remembered.limits.prompt_bytes + 1)),
            ..session
        };
        remembered.keep(long).expect("writes");
        assert_eq!(remembered.session().map(|kept| kept.prompt), Some(None));
        fs::write(&remembered.session, b"{\"look\": 3").expect("writes");
        assert_eq!(remembered.session(), None);
    }

    #[test]
    fn the_oldest_sessions_are_removed_first() {
        let directory = tempfile::tempdir().expect("a directory");
        for n in 0..MOST_SESSIONS + 3 {
            let path = directory.path().join(format!("{n}.json"));
            let file = fs::File::create(&path).expect("creates");
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 + n as u64);
            file.set_modified(time).expect("a time");
        }
        bound(directory.path()).expect("removes");
        let left = |n: usize| directory.path().join(format!("{n}.json")).exists();
        assert!(!left(0) && !left(2) && left(3) && left(MOST_SESSIONS + 2));
    }

    #[test]
    fn prompts_are_read_back_and_a_broken_file_reads_as_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let remembered = in_directory(directory.path());
        assert!(remembered.read().is_empty());
        for prompt in ["one\ntwo", "three", "one\ntwo"] {
            remembered.add(prompt).expect("writes");
        }
        assert_eq!(remembered.read(), ["three", "one\ntwo"]);
        fs::write(&remembered.prompts, b"[1, 2").expect("writes");
        assert!(remembered.read().is_empty());
        remembered.add("four").expect("writes");
        assert_eq!(remembered.read(), ["four"]);
    }
}
