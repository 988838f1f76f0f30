//! An address of an object store: `s3://bucket/key`.

use std::fmt;
use std::path::Path;

use attnscope_compute::error::{Error, Result};

const SCHEME: &str = "s3://";

/// A bucket, and a key or prefix in it without slashes at its ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    pub bucket: String,
    pub key: String,
}

/// Whether a path is an address in an object store.
pub fn is_address(path: &Path) -> bool {
    let text = path.to_str();
    text.is_some_and(|text| text.starts_with(SCHEME))
}

impl Address {
    /// Parses an address; `None` for a path.
    ///
    /// # Errors
    /// When there is no bucket, or the key would leave its directory.
    pub fn parse(path: &Path) -> Result<Option<Self>> {
        if !is_address(path) {
            return Ok(None);
        }
        let text = path.to_str().unwrap_or_default();
        let rest = &text[SCHEME.len()..];
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if bucket.is_empty() || bucket.starts_with('.') || !bucket.chars().all(is_name) {
            let problem = format!("expected s3://BUCKET/PREFIX, found the bucket {bucket:?}");
            return Err(Error::file(path, problem));
        }
        let key = key.trim_matches('/');
        let stays = |part: &str| !part.is_empty() && part != "." && part != "..";
        if !key.is_empty() && !key.split('/').all(stays) {
            let problem = "expected a key without empty parts, . and ..".to_owned();
            return Err(Error::file(path, problem));
        }
        Ok(Some(Self {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
        }))
    }

    /// Returns the address of a name below this one.
    pub fn join(&self, name: &str) -> Self {
        let key = if self.key.is_empty() {
            name.to_owned()
        } else {
            format!("{}/{name}", self.key)
        };
        Self {
            bucket: self.bucket.clone(),
            key,
        }
    }

    /// Returns the last part of the key, or the bucket.
    pub fn name(&self) -> &str {
        if self.key.is_empty() {
            return &self.bucket;
        }
        self.key.rsplit('/').next().unwrap_or(&self.key)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.bucket)?;
        if self.key.is_empty() {
            return Ok(());
        }
        write!(f, "/{}", self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<Address>> {
        Address::parse(Path::new(text))
    }

    #[test]
    fn an_address_is_parsed_into_bucket_and_key_without_outer_slashes() {
        for (text, bucket, key) in [
            ("s3://runs/steps/step-50/", "runs", "steps/step-50"),
            ("s3://runs", "runs", ""),
            ("s3://runs/", "runs", ""),
            ("s3://my.bucket-1/a b/ü.json", "my.bucket-1", "a b/ü.json"),
        ] {
            let address = parsed(text).expect(text).expect(text);
            assert_eq!(
                (address.bucket.as_str(), address.key.as_str()),
                (bucket, key)
            );
            let again = parsed(&address.to_string()).expect(text);
            assert_eq!(again, Some(address));
        }
        let steps = parsed("s3://runs/steps").expect("one").expect("one");
        assert_eq!(steps.join("a/b").to_string(), "s3://runs/steps/a/b");
        assert_eq!(steps.join("a/b").name(), "b");
        for path in ["/tmp/s3", "s3:/x/y", "runs/steps", "hf://a/b"] {
            assert_eq!(parsed(path).expect(path), None);
        }
    }

    #[test]
    fn keys_that_leave_their_directory_and_missing_buckets_are_refused() {
        for text in [
            "s3://",
            "s3:///key",
            "s3://../key",
            "s3://a/../b",
            "s3://a/b//c",
            "s3://a b/c",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
