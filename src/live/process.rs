//! The Python process of a target: how it is started, what it prints, and how it ended.

use std::collections::VecDeque;
use std::env;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use attnscope_compute::error::{Error, Result};

/// Most lines kept of what the process prints.
const N_LINES: usize = 200;
/// Most bytes of such a line.
const LONGEST_LINE: u64 = 4096;
/// How long a process may take to end by itself.
const PATIENCE: Duration = Duration::from_millis(500);

/// A started process; ended when dropped.
pub struct Process {
    child: Child,
    python: PathBuf,
    said: Arc<Mutex<VecDeque<String>>>,
}

impl Process {
    /// Starts Python, and returns our end of its channel.
    ///
    /// # Errors
    /// When there is no such interpreter.
    pub fn start(python: Option<&Path>, bootstrap: &str) -> Result<(Self, UnixStream)> {
        let python = python.map_or_else(default_python, Path::to_path_buf);
        let failed = |e: std::io::Error| {
            let hint = "--python names the interpreter that has the model's packages";
            Error::Setting(format!(
                "{} cannot be started ({e}); {hint}",
                python.display()
            ))
        };
        let (own, theirs) = UnixStream::pair().map_err(failed)?;
        let mut child = Command::new(&python)
            .args(["-u", "-c", bootstrap])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let said: Arc<Mutex<VecDeque<String>>> = Arc::default();
        if let Some(output) = child.stdout.take() {
            keep_lines(output, said.clone());
        }
        if let Some(output) = child.stderr.take() {
            keep_lines(output, said.clone());
        }
        Ok((
            Self {
                child,
                python,
                said,
            },
            own,
        ))
    }

    /// Says how the process ended, with the last line that it printed.
    pub fn end(&mut self) -> String {
        let status = self.wait(PATIENCE);
        // What it printed last may still be on its way.
        thread::sleep(Duration::from_millis(20));
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let last = said.iter().rev().find(|line| !line.trim().is_empty());
        let last = last.map_or(String::new(), |line| format!(": {}", line.trim()));
        format!("{} {}{last}", self.python.display(), how(status))
    }

    fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
                _ => return None,
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.wait(PATIENCE).is_none() {
            let ended = self.child.kill().and_then(|()| self.child.wait());
            if let Err(e) = ended {
                log::warn!("{}: {e}", self.python.display());
            }
        }
    }
}

fn how(status: Option<ExitStatus>) -> String {
    let Some(status) = status else {
        return "closed the channel".to_owned();
    };
    match (status.signal(), status.code()) {
        (Some(9), _) => "was killed (signal 9), possibly for want of memory".to_owned(),
        (Some(11), _) => "crashed (signal 11, a bad memory access)".to_owned(),
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, Some(code)) => format!("ended with {code}"),
        (None, None) => "ended".to_owned(),
    }
}

/// The interpreter that `python -m attnscope` names, or that of the active environment.
fn default_python() -> PathBuf {
    if let Some(python) = env::var_os("ATTNSCOPE_PYTHON") {
        return PathBuf::from(python);
    }
    let of_environment = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .find_map(|name| {
            let path = PathBuf::from(env::var_os(name)?).join("bin/python3");
            path.exists().then_some(path)
        });
    of_environment.unwrap_or_else(|| PathBuf::from("python3"))
}

/// Keeps the last lines of an output, read on a thread of its own.
fn keep_lines(output: impl Read + Send + 'static, said: Arc<Mutex<VecDeque<String>>>) {
    let listen = move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        loop {
            line.clear();
            match output
                .by_ref()
                .take(LONGEST_LINE)
                .read_until(b'\n', &mut line)
            {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            log::info!("python: {text}");
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            said.push_back(text);
            if said.len() > N_LINES {
                said.pop_front();
            }
        }
    };
    let started = thread::Builder::new()
        .name("python output".to_owned())
        .spawn(listen);
    if let Err(e) = started {
        log::warn!("no thread for what Python prints: {e}");
    }
}
