//! Requests to the hub: a model's list of files, and their bytes. The user's token is sent to the hub and to no other host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use attnscope_checkpoint::hub::Address;
use attnscope_checkpoint::read_regular;
use serde::Deserialize;
use ureq::config::RedirectAuthHeaders;
use ureq::http::Response;
use ureq::{Agent, Body};

const ENDPOINT: &str = "https://huggingface.co";
/// Timeouts for connecting, and for the start of a response.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(60);
/// Timeout for a whole listing.
const WHOLE_LISTING: Duration = Duration::from_secs(120);
/// Most bytes of a listing.
const LONGEST_LISTING: u64 = 64 << 20;
/// Most bytes of a token file.
const LONGEST_TOKEN: usize = 64 << 10;

/// Reason why the hub provides nothing.
#[derive(Debug)]
pub enum Refusal {
    /// It responded with this status, and with its own message if it has one.
    Status(u16, Option<String>),
    /// It cannot be reached, or the response cannot be parsed.
    Other(String),
}

impl Refusal {
    /// Describes the problem, and what to do.
    pub fn words(&self, address: &Address) -> String {
        let revision = &address.revision;
        let nowhere = if address.has_scheme {
            "there is no model of this name on the hub"
        } else {
            "there is no such file or directory, and no model of this name on the hub"
        };
        match self {
            Self::Status(status, word) => match (word.as_deref(), status) {
                (Some("GatedRepo"), _) | (_, 403) => format!(
                    "is gated ({status}): ask for access on its page, and set HF_TOKEN to a token that may read it"
                ),
                (Some("RevisionNotFound"), _) => format!("has no revision {revision} on the hub"),
                (Some("EntryNotFound"), _) => "has no such file on the hub".to_owned(),
                (_, 401) => {
                    format!("{nowhere}, or it is private (401): check the name, or set HF_TOKEN")
                }
                (_, 404) => format!("{nowhere}, at revision {revision} (404)"),
                (_, 429) => {
                    "the hub answers that it was asked too often (429); try again later".to_owned()
                }
                _ => format!("the hub answers with status {status}"),
            },
            Self::Other(problem) => format!(
                "there is no such file or directory, and the hub cannot be reached ({problem}); --offline uses cached models only"
            ),
        }
    }
}

/// Client of one hub.
pub struct Client {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
}

/// The files of a model at one commit.
#[derive(Debug)]
pub struct Listing {
    pub commit: String,
    pub files: Vec<String>,
}

/// The parts of the hub's listing that are needed.
#[derive(Deserialize)]
struct Said {
    #[serde(default)]
    sha: String,
    #[serde(default)]
    siblings: Vec<SaidFile>,
}

#[derive(Deserialize)]
struct SaidFile {
    rfilename: String,
}

/// Metadata of a file, known before it is downloaded.
#[derive(Debug)]
pub struct About {
    /// Name of its blob.
    pub etag: String,
    pub commit: Option<String>,
    pub n_bytes: Option<u64>,
}

impl Client {
    /// Makes a client of the hub set in the environment, with the token from the environment or the usual file.
    pub fn of_environment() -> Self {
        let config = Agent::config_builder()
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(ANSWER))
            .http_status_as_error(false)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .user_agent(concat!("attnscope/", env!("CARGO_PKG_VERSION")))
            .build();
        let endpoint = std::env::var("HF_ENDPOINT")
            .ok()
            .filter(|set| !set.is_empty());
        let endpoint = endpoint.unwrap_or_else(|| ENDPOINT.to_owned());
        Self {
            agent: Agent::new_with_config(config),
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: token(),
        }
    }

    /// Lists the files of a model.
    ///
    /// # Errors
    /// When the hub refuses, or cannot be reached.
    pub fn listing(&self, address: &Address) -> Result<Listing, Refusal> {
        let revision = escaped(&address.revision);
        let url = format!(
            "{}/api/models/{}/revision/{revision}",
            self.endpoint, address.repository
        );
        let mut answer = self.get(&url, None, Some(WHOLE_LISTING))?;
        let text = answer
            .body_mut()
            .with_config()
            .limit(LONGEST_LISTING)
            .read_to_string();
        let text = text.map_err(|e| Refusal::Other(e.to_string()))?;
        let said: Said = serde_json::from_str(&text)
            .map_err(|e| Refusal::Other(format!("its answer is not a listing: {e}")))?;
        let files = said.siblings.into_iter().map(|file| file.rfilename);
        let (commit, files) = (said.sha, files.collect());
        if commit.is_empty() || !commit.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Refusal::Other("its answer names no commit".to_owned()));
        }
        Ok(Listing { commit, files })
    }

    /// Returns the URL of a file.
    fn url(&self, address: &Address, commit: &str, file: &str) -> String {
        let file: Vec<String> = file.split('/').map(escaped).collect();
        format!(
            "{}/{}/resolve/{commit}/{}",
            self.endpoint,
            address.repository,
            file.join("/")
        )
    }

    /// Requests the metadata of a file. Redirects to the storage server are not followed: its response has less metadata.
    ///
    /// # Errors
    /// When the hub refuses, or cannot be reached.
    pub fn about(&self, address: &Address, commit: &str, file: &str) -> Result<About, Refusal> {
        let mut url = self.url(address, commit, file);
        // A renamed model redirects to its new path.
        for _ in 0..4 {
            let request = self
                .agent
                .head(&url)
                .config()
                .max_redirects(0)
                .max_redirects_will_error(false)
                .build();
            let request = match &self.token {
                Some(token) => request.header("authorization", format!("Bearer {token}")),
                None => request,
            };
            let request = request.header("accept-encoding", "identity");
            let answer = request.call().map_err(|e| Refusal::Other(e.to_string()))?;
            let status = answer.status().as_u16();
            if status >= 400 {
                return Err(refusal(&answer));
            }
            let header = |name: &str| {
                let value = answer.headers().get(name)?.to_str().ok()?;
                Some(value.to_owned())
            };
            if let Some(to) =
                header("location").filter(|to| (300..400).contains(&status) && to.starts_with('/'))
            {
                url = format!("{}{to}", self.endpoint);
                continue;
            }
            let size =
                header("x-linked-size").or(header("content-length").filter(|_| status < 300));
            let etag = header("x-linked-etag").or(header("etag"));
            let etag = etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_owned());
            let is_name = |etag: &String| {
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
                !etag.is_empty() && etag.len() <= 128 && etag.chars().all(plain)
            };
            return Ok(About {
                etag: etag.filter(is_name).ok_or_else(|| {
                    Refusal::Other(format!("its answer names no content of {file}"))
                })?,
                commit: header("x-repo-commit"),
                n_bytes: size.and_then(|size| size.parse().ok()),
            });
        }
        Err(Refusal::Other(
            "it leads from one place to another without end".to_owned(),
        ))
    }

    /// Downloads a file from a byte on, to its end or up to a byte.
    ///
    /// # Errors
    /// When the hub refuses, or cannot be reached.
    pub fn bytes(
        &self,
        address: &Address,
        commit: &str,
        file: &str,
        range: (u64, Option<u64>),
    ) -> Result<Response<Body>, Refusal> {
        let range = match range {
            (0, None) => None,
            (from, None) => Some(format!("bytes={from}-")),
            (from, Some(end)) => Some(format!("bytes={from}-{}", end.saturating_sub(1))),
        };
        self.get(&self.url(address, commit, file), range, None)
    }

    fn get(
        &self,
        url: &str,
        range: Option<String>,
        most: Option<Duration>,
    ) -> Result<Response<Body>, Refusal> {
        let request = self.agent.get(url).config().timeout_recv_body(most).build();
        let mut request = request.header("accept-encoding", "identity");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some(range) = range {
            request = request.header("range", range);
        }
        let answer = request.call().map_err(|e| Refusal::Other(e.to_string()))?;
        if answer.status().as_u16() >= 400 {
            return Err(refusal(&answer));
        }
        Ok(answer)
    }
}

fn refusal(answer: &Response<Body>) -> Refusal {
    let word = answer
        .headers()
        .get("x-error-code")
        .and_then(|word| word.to_str().ok());
    Refusal::Status(answer.status().as_u16(), word.map(str::to_owned))
}

/// Escapes part of a path for a URL.
fn escaped(text: &str) -> String {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'_')
        .remove(b'.')
        .remove(b'~');
    utf8_percent_encode(text, PLAIN).to_string()
}

/// Returns the user's token: from the environment, or from the file that `hf auth login` writes.
fn token() -> Option<String> {
    let set = |name: &str| {
        std::env::var(name)
            .ok()
            .filter(|value| !value.trim().is_empty())
    };
    if let Some(token) = set("HF_TOKEN").or_else(|| set("HUGGING_FACE_HUB_TOKEN")) {
        return Some(token.trim().to_owned());
    }
    let file = match (set("HF_TOKEN_PATH"), set("HF_HOME")) {
        (Some(path), _) => PathBuf::from(path),
        (None, Some(home)) => Path::new(&home).join("token"),
        (None, None) => Path::new(&set("HOME")?).join(".cache/huggingface/token"),
    };
    let token = read_regular(&file, LONGEST_TOKEN).ok()?;
    let token = String::from_utf8(token).ok()?;
    Some(token.trim().to_owned()).filter(|token| !token.is_empty())
}
