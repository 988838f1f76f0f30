//! A session with a live subject: requests, one after another, and their answers.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use attnscope_checkpoint::values::Values;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::pace::Pace;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::about::About;
use super::channel::{Channel, Frame, Waited};
use super::code::Code;
use super::process::Process;
use super::target::LiveTarget;

/// Interval in which a wait looks whether it is to stop.
const WAIT: Duration = Duration::from_millis(20);
/// How long a stopped process may take to say so, before it is ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a live subject is asked to run. Without text, ids and values it runs what it chooses itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request {
    pub text: Option<String>,
    pub ids: Option<Vec<u32>>,
    /// Rows of numbers in place of tokens, for models that take vectors.
    pub values: Option<Values>,
    /// Ids of the decoder, for models with an encoder.
    pub target: Option<Vec<u32>>,
    /// What the code is meant to do: `causal`, `bidirectional` or `none`.
    pub mask: Option<&'static str>,
    /// How many keys a query is meant to see, itself included.
    pub window: Option<usize>,
    /// Where packed documents begin.
    pub documents: Option<Vec<usize>>,
    /// Changes of attention, as `docs/live.md` has them.
    pub changes: Vec<Value>,
    /// Run the model on changed inputs, and return a probe in place of a trace.
    pub probes: bool,
    /// Last parts of the names of the arrays that are needed; `None` for all.
    pub hooks: Option<Vec<&'static str>>,
}

impl Request {
    fn header(&self, id: u64) -> Value {
        json!({
            "kind": "run", "id": id, "text": self.text, "ids": self.ids, "values": self.values.as_ref().map(Values::rows),
            "target": self.target, "mask": self.mask, "window": self.window, "documents": self.documents,
            "changes": self.changes, "probes": self.probes, "hooks": self.hooks,
        })
    }
}

/// A finished run.
#[derive(Debug)]
pub struct Done {
    /// A trace or a probe, which lasts as long as the session.
    pub path: PathBuf,
    /// Time that it took in the process.
    pub took: Duration,
    /// The text that ran, if it was one.
    pub text: Option<String>,
}

/// A connected process.
struct Link {
    // Dropped first, so that the process sees the end of its channel.
    channel: Channel,
    process: Option<Process>,
}

/// A session with one target. The process starts with the first request, and again after it has ended.
pub struct LiveSession {
    target: LiveTarget,
    python: Option<PathBuf>,
    code: Code,
    directory: TempDir,
    link: Option<Link>,
    about: About,
    n_requests: u64,
    /// Files of finished runs that were not let go.
    kept: Vec<PathBuf>,
}

impl LiveSession {
    /// # Errors
    /// When there is no directory for what comes back.
    pub fn new(target: LiveTarget, python: Option<&Path>, code: Code) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("attnscope-").tempdir();
        let directory = directory.map_err(|e| {
            let problem = format!("no directory can be made there for traces ({e})");
            Error::file(std::env::temp_dir(), problem)
        })?;
        Ok(Self {
            target,
            code,
            python: python.map(Path::to_path_buf),
            directory,
            link: None,
            about: About::default(),
            n_requests: 0,
            kept: Vec::new(),
        })
    }

    /// Where the files of runs are until the session ends.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn target(&self) -> &LiveTarget {
        &self.target
    }

    /// What the process says of itself; starts it if it does not run.
    ///
    /// # Errors
    /// When it cannot be started, or the person's code fails.
    pub fn about(&mut self, pace: &dyn Pace) -> Result<&About> {
        if self.link.is_none() {
            self.link = Some(self.connected()?);
            self.ask(json!({"kind": "hello"}), &mut |_, _, _| {}, pace)
                .map(|frame| self.introduce(&frame.header))?;
        }
        Ok(&self.about)
    }

    /// Loads the person's code anew.
    ///
    /// # Errors
    /// When the person's code fails.
    pub fn reload(&mut self, pace: &dyn Pace) -> Result<&About> {
        if self.link.is_none() {
            return self.about(pace);
        }
        let frame = self.ask(json!({"kind": "reload"}), &mut |_, _, _| {}, pace)?;
        self.introduce(&frame.header);
        Ok(&self.about)
    }

    /// Ids and texts of a text's tokens.
    ///
    /// # Errors
    /// When there is no tokenizer, or it fails.
    pub fn tokens(&mut self, text: &str, pace: &dyn Pace) -> Result<(Vec<u32>, Vec<String>)> {
        self.about(pace)?;
        let asked = json!({"kind": "tokens", "text": text});
        let answer = self.ask(asked, &mut |_, _, _| {}, pace)?.header;
        let ids = serde_json::from_value(answer["ids"].clone());
        let labels = serde_json::from_value(answer["labels"].clone());
        match (ids, labels) {
            (Ok(ids), Ok(labels)) => Ok((ids, labels)),
            _ => Err(self.error("tokens came back that are no list of ids and texts")),
        }
    }

    /// Texts of ids; their numbers without a tokenizer.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn labels(&mut self, ids: &[u32], pace: &dyn Pace) -> Result<Vec<String>> {
        self.about(pace)?;
        if ids.is_empty() || self.about.tokenizer.is_none() {
            return Ok(ids.iter().map(u32::to_string).collect());
        }
        let asked = json!({"kind": "tokens", "ids": ids});
        let answer = self.ask(asked, &mut |_, _, _| {}, pace)?.header;
        serde_json::from_value(answer["labels"].clone())
            .map_err(|_| self.error("texts of tokens came back that are no list"))
    }

    /// Runs the model, and returns what was recorded. `told` gets what is done, how many, and of how many (0 if unknown).
    ///
    /// # Errors
    /// When the person's code fails, the process ends, or the pace stops it.
    pub fn run(
        &mut self,
        request: &Request,
        told: &mut dyn FnMut(&str, usize, usize),
        pace: &dyn Pace,
    ) -> Result<Done> {
        self.about(pace)?;
        let mut header = request.header(self.n_requests + 1);
        // On the same machine, a file that is moved there need not go through the channel.
        header["directory"] = self.directory.path().to_str().into();
        let frame = self.ask(header, told, pace)?;
        let took = frame.header["took"].as_f64().unwrap_or(0.0);
        // A process that does not know the field ignores it, and runs something else.
        if request.values.is_some() && frame.header["values"] != true {
            remove(frame.body.as_deref());
            return Err(self.error("its process takes no --values: it ran what it chose itself"));
        }
        match frame.body {
            Some(path) => {
                self.kept.push(path.clone());
                Ok(Done {
                    path,
                    took: Duration::try_from_secs_f64(took).unwrap_or_default(),
                    text: frame.header["text"].as_str().map(str::to_owned),
                })
            }
            None => Err(self.error("a run came back without its trace")),
        }
    }

    /// Removes the files of all finished runs but those that are still shown.
    pub fn keep_only(&mut self, shown: &[PathBuf]) {
        self.kept.retain(|path| {
            let is_shown = shown.contains(path);
            if !is_shown {
                remove(Some(path));
            }
            is_shown
        });
    }

    fn introduce(&mut self, header: &Value) {
        match serde_json::from_value(header.clone()) {
            Ok(about) => self.about = about,
            Err(e) => log::warn!("{}: ready, but {e}", self.target),
        }
        if self.about.name.is_empty() {
            self.about.name = self.target.to_string();
        }
    }

    fn connected(&self) -> Result<Link> {
        let (process, stream) = match &self.target {
            LiveTarget::Python(_) => {
                if let Some(file) = self.target.file().filter(|file| !file.is_file()) {
                    return Err(Error::file(file, "there is no such Python file"));
                }
                let (process, stream) =
                    Process::start(self.python.as_deref(), self.code.bootstrap)?;
                (Some(process), stream)
            }
            LiveTarget::Socket(path) => {
                let stream = UnixStream::connect(path).map_err(|e| {
                    let problem = format!("no process answers there ({e}); attnscope.open prints the name of a socket that does");
                    Error::file(path, problem)
                })?;
                (None, stream)
            }
        };
        let channel = Channel::over(stream, self.directory.path());
        let channel = channel.map_err(|e| self.error(&e.to_string()))?;
        if process.is_some() {
            let target = self.target.to_string();
            let first = json!({"kind": "code", "sources": self.code.sources(), "target": target});
            // A process that is gone already is told of when its answer is waited for.
            if let Err(e) = channel.send(first) {
                log::debug!("{}: {e}", self.target);
            }
        }
        Ok(Link { channel, process })
    }

    /// Sends a request and waits for its answer.
    fn ask(
        &mut self,
        mut header: Value,
        told: &mut dyn FnMut(&str, usize, usize),
        pace: &dyn Pace,
    ) -> Result<Frame> {
        self.n_requests += 1;
        let id = self.n_requests;
        header["id"] = id.into();
        let Some(link) = &self.link else {
            return Err(self.error("not connected"));
        };
        if let Err(e) = link.channel.send(header) {
            log::debug!("{}: {e}", self.target);
        }
        let mut stopped: Option<Instant> = None;
        loop {
            if stopped.is_none() && pace.stops() {
                stopped = Some(Instant::now());
                if let Err(e) = link.channel.send(json!({"kind": "cancel", "id": id})) {
                    log::debug!("{}: {e}", self.target);
                }
            }
            match link.channel.wait(WAIT) {
                Waited::Frame(frame) if frame.header["id"] == id => {
                    match frame.header["kind"].as_str() {
                        Some("part") => {
                            let n = |key: &str| frame.header[key].as_u64().unwrap_or(0) as usize;
                            told(
                                frame.header["what"].as_str().unwrap_or(""),
                                n("done"),
                                n("of"),
                            );
                        }
                        // Ctrl-C in a terminal reaches the process too, which may answer before the pace was asked.
                        Some("failed") if stopped.is_some() || pace.stops() => {
                            return Err(Error::Cancelled);
                        }
                        Some("failed") => return Err(self.failed(&frame.header)),
                        Some("ready" | "done") if stopped.is_some() => {
                            remove(frame.body.as_deref());
                            return Err(Error::Cancelled);
                        }
                        Some("ready" | "done") => return Ok(frame),
                        other => log::warn!("{}: an answer of kind {other:?}", self.target),
                    }
                }
                // The answer to a request that was given up.
                Waited::Frame(frame) => remove(frame.body.as_deref()),
                Waited::Nothing => {}
                Waited::Gone(why) => {
                    let error = self.gone(why);
                    return Err(if pace.stops() {
                        Error::Cancelled
                    } else {
                        error
                    });
                }
            }
            if stopped.is_some_and(|since| since.elapsed() > PATIENCE) {
                log::warn!(
                    "{}: it did not stop within {PATIENCE:?}, and is ended",
                    self.target
                );
                self.link = None;
                return Err(Error::Cancelled);
            }
        }
    }

    /// What the person's code raised, with the line of theirs.
    fn failed(&self, header: &Value) -> Error {
        let message = header["message"].as_str().unwrap_or("it failed");
        let frame = &header["frame"];
        let place = match (frame["file"].as_str(), frame["line"].as_u64()) {
            (Some(file), Some(line)) => {
                let text = frame["text"].as_str().filter(|text| !text.is_empty());
                let text = text.map_or(String::new(), |text| format!(": {text}"));
                format!(" ({}:{line}{text})", nearby(Path::new(file)).display())
            }
            _ => String::new(),
        };
        self.error(&format!("{message}{place}"))
    }

    fn gone(&mut self, why: Option<String>) -> Error {
        let link = self.link.take();
        let process = link.and_then(|mut link| link.process.take());
        let words = match (process, why) {
            (_, Some(why)) => why,
            (Some(mut process), None) => process.end(),
            (None, None) => "the process that holds the model is gone".to_owned(),
        };
        self.error(&words)
    }

    fn error(&self, problem: &str) -> Error {
        Error::Prompt(format!("{}: {}", self.target, problem.replace('\n', " ")))
    }
}

impl Drop for LiveSession {
    fn drop(&mut self) {
        if let Some(link) = &self.link
            && let Err(e) = link.channel.send(json!({"kind": "bye"}))
        {
            log::debug!("{}: {e}", self.target);
        }
    }
}

fn remove(body: Option<&Path>) {
    if let Some(path) = body
        && let Err(e) = std::fs::remove_file(path)
    {
        log::debug!("{}: {e}", path.display());
    }
}

/// A path relative to the working directory where it lies below it.
fn nearby(path: &Path) -> PathBuf {
    let here = std::env::current_dir().ok();
    let below = here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_path_buf));
    below.unwrap_or_else(|| path.to_path_buf())
}

impl std::fmt::Debug for LiveSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveSession")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}
