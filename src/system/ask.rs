//! Asks a running server: one JSON document there, one back, with limits of time and size. Nothing else is sent, and no redirect is followed.

use std::time::Duration;

#[cfg(feature = "hub")]
use ureq::Agent;

/// Time for connecting.
#[cfg(feature = "hub")]
const CONNECT: Duration = Duration::from_secs(10);
/// Most bytes of an answer.
#[cfg(feature = "hub")]
const LONGEST: u64 = 256 << 20;
/// Most characters of a refusal that are shown.
#[cfg(feature = "hub")]
const SHOWN: usize = 300;

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// The server refused with this status and words of its own.
    Refused(u16, String),
    /// It could not be reached, was too slow, or sent too much.
    Failed(String),
}

/// Sends JSON and returns the answer's text. `key` is sent as a bearer token.
///
/// # Errors
/// When the server cannot be reached in time, refuses, or answers with more than 256 MiB.
#[cfg(feature = "hub")]
pub fn ask(
    url: &str,
    body: &serde_json::Value,
    key: Option<&str>,
    patience: Duration,
) -> Result<String, NoAnswer> {
    let config = Agent::config_builder()
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(patience))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("attnscope/", env!("CARGO_PKG_VERSION")))
        .build();
    let failed = |e: ureq::Error| NoAnswer::Failed(e.to_string());
    let mut request = Agent::new_with_config(config)
        .post(url)
        .header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let mut answer = request.send(body.to_string()).map_err(failed)?;
    let status = answer.status().as_u16();
    let text = answer
        .body_mut()
        .with_config()
        .limit(LONGEST)
        .read_to_string();
    if status != 200 {
        let words: String = text.unwrap_or_default().chars().take(SHOWN).collect();
        return Err(NoAnswer::Refused(status, words));
    }
    text.map_err(failed)
}

/// Says that this program asks no servers.
///
/// # Errors
/// Always.
#[cfg(not(feature = "hub"))]
pub fn ask(
    _: &str,
    _: &serde_json::Value,
    _: Option<&str>,
    _: Duration,
) -> Result<String, NoAnswer> {
    Err(NoAnswer::Failed(
        "this program was built without the feature hub".to_owned(),
    ))
}
