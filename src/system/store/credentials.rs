//! Keys for an object store, from the environment or from the file of the AWS command line.

use std::path::PathBuf;

use attnscope_checkpoint::{CONFIGURATION, read_regular};

/// Variables that say where keys come from.
const SOURCES: [&str; 6] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
];

/// Keys of a profile.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Keys {
    pub id: String,
    pub secret: String,
    pub token: Option<String>,
}

fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether the environment says where keys come from.
pub fn environment_has_some() -> bool {
    SOURCES.iter().any(|name| set(name).is_some())
}

/// Returns the keys of the profile in `AWS_PROFILE`.
pub fn of_file() -> Option<Keys> {
    let path = set("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
    let path = path.or_else(|| Some(PathBuf::from(set("HOME")?).join(".aws/credentials")))?;
    let profile = set("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
    let text = read_regular(&path, CONFIGURATION).ok()?;
    parse(&String::from_utf8(text).ok()?, &profile)
}

/// Parses the keys of a profile from a credentials file.
fn parse(text: &str, profile: &str) -> Option<Keys> {
    let mut keys = Keys::default();
    let mut is_inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            is_inside = name.trim_end_matches(']').trim() == profile;
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| is_inside) else {
            continue;
        };
        let value = value.trim().to_owned();
        match key.trim() {
            "aws_access_key_id" => keys.id = value,
            "aws_secret_access_key" => keys.secret = value,
            "aws_session_token" => keys.token = Some(value),
            _ => {}
        }
    }
    (!keys.id.is_empty() && !keys.secret.is_empty()).then_some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_named_profile() {
        let text = "[default]\naws_access_key_id = a\naws_secret_access_key=b\n\n[ team ]\naws_access_key_id=c\naws_secret_access_key = d=\naws_session_token = e\n[empty]\n";
        let keys = parse(text, "team").expect("keys");
        assert_eq!((keys.id.as_str(), keys.secret.as_str()), ("c", "d="));
        assert_eq!(keys.token.as_deref(), Some("e"));
        assert_eq!(parse(text, "default").expect("keys").token, None);
        assert_eq!(parse(text, "empty"), None);
        assert_eq!(parse(text, "nobody"), None);
    }
}
