//! Blocking requests to a bucket: listing, reading and writing objects.
//!
//! The client repeats requests that fail temporarily; an interrupted read is resumed where it stopped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use attnscope_compute::error::{Error, Result};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as Key;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, ObjectStoreExt, RetryConfig};
use tokio::runtime::Runtime;

use super::address::Address;
use super::credentials;
use crate::fetch::{Fetched, tell};

/// Bytes read per request.
const PIECE: u64 = 8 << 20;
/// Timeouts for connecting and for a response.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(120);
/// Most attempts of a request, and the longest time for them.
const MOST_TRIES: usize = 5;
const LONGEST: Duration = Duration::from_secs(60);

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub address: Address,
    pub n_bytes: u64,
    pub etag: String,
}

/// Objects and prefixes directly below a prefix.
#[derive(Debug, Default)]
pub struct Level {
    pub objects: Vec<Object>,
    pub prefixes: Vec<Address>,
}

fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<std::result::Result<Runtime, String>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        // If a provider is installed already, that one is fine too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let built = builder.worker_threads(2).enable_all().build();
        built.map_err(|e| e.to_string())
    });
    made.as_ref()
        .map_err(|e| Error::Setting(format!("s3: no threads for requests ({e})")))
}

/// Returns the endpoint set in the environment, for stores other than Amazon's.
fn endpoint() -> Option<String> {
    let names = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    names.iter().find_map(|name| std::env::var(name).ok())
}

/// Returns the client of a bucket, created once.
fn client(address: &Address) -> Result<Arc<AmazonS3>> {
    static CLIENTS: Mutex<BTreeMap<String, Arc<AmazonS3>>> = Mutex::new(BTreeMap::new());
    runtime()?;
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = clients.get(&address.bucket) {
        return Ok(known.clone());
    }
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: MOST_TRIES,
        retry_timeout: LONGEST,
    };
    let endpoint = endpoint();
    let is_plain = endpoint
        .as_ref()
        .is_some_and(|url| url.starts_with("http://"));
    let options = ClientOptions::new()
        .with_connect_timeout(CONNECT)
        .with_timeout(ANSWER)
        .with_allow_http(is_plain);
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&address.bucket)
        .with_retry(retry)
        .with_client_options(options);
    if !credentials::environment_has_some() {
        match credentials::of_file() {
            Some(keys) => {
                builder = builder
                    .with_access_key_id(keys.id)
                    .with_secret_access_key(keys.secret);
                if let Some(token) = keys.token {
                    builder = builder.with_token(token);
                }
            }
            // Cloud machines have their own keys, which a different store does not know.
            None if endpoint.is_some() => return Err(Error::file(address.to_string(), NO_KEYS)),
            None => {}
        }
    }
    let built = builder.build().map_err(|e| refusal(address, &e))?;
    let built = Arc::new(built);
    clients.insert(address.bucket.clone(), built.clone());
    Ok(built)
}

const NO_KEYS: &str = "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a bucket \
                       that anybody may read";

/// Describes a refusal, and what to do.
fn refusal(address: &Address, error: &object_store::Error) -> Error {
    use object_store::Error as Of;
    let said = error.to_string();
    let bucket = &address.bucket;
    let words = match error {
        _ if said.contains("NoSuchBucket") => format!("there is no bucket {bucket} (404)"),
        Of::NotFound { .. } => "there is no such object (404)".to_owned(),
        _ if said.contains("InvalidAccessKeyId") || said.contains("SignatureDoesNotMatch") => {
            "the credentials are refused (403): check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION".to_owned()
        }
        Of::PermissionDenied { .. } | Of::Unauthenticated { .. } => format!(
            "access is denied (403): the credentials may not do this in the bucket {bucket}; AWS_SKIP_SIGNATURE=true reads without any"
        ),
        _ if said.contains("169.254.169.254") || said.contains("nstance credentials") => NO_KEYS.to_owned(),
        _ if said.contains("error sending request") || said.contains("onnect") => {
            let endpoint = endpoint().unwrap_or_else(|| "of Amazon".to_owned());
            format!("the object store {endpoint} cannot be reached; AWS_ENDPOINT_URL names another")
        }
        _ => {
            let words: Vec<&str> = said.split_whitespace().collect();
            let short: String = words.join(" ").chars().take(300).collect();
            format!("the object store does not answer as expected: {short}")
        }
    };
    Error::file(address.to_string(), words)
}

fn key_of(address: &Address) -> Result<Key> {
    Key::parse(&address.key).map_err(|e| Error::file(address.to_string(), e.to_string()))
}

/// Lists what is directly below a prefix.
///
/// # Errors
/// When the store refuses, or cannot be reached.
pub fn level(prefix: &Address) -> Result<Level> {
    let (client, key) = (client(prefix)?, key_of(prefix)?);
    let asked = (!prefix.key.is_empty()).then_some(&key);
    let found = runtime()?.block_on(client.list_with_delimiter(asked));
    let found = found.map_err(|e| refusal(prefix, &e))?;
    let at = |key: &Key| Address {
        bucket: prefix.bucket.clone(),
        key: key.as_ref().to_owned(),
    };
    let object = |meta: &object_store::ObjectMeta| Object {
        address: at(&meta.location),
        n_bytes: meta.size,
        etag: meta.e_tag.clone().unwrap_or_default(),
    };
    Ok(Level {
        objects: found.objects.iter().map(object).collect(),
        prefixes: found.common_prefixes.iter().map(at).collect(),
    })
}

/// Returns an object by its exact key; `None` if there is none.
///
/// # Errors
/// When the store refuses, or cannot be reached.
pub fn object(address: &Address) -> Result<Option<Object>> {
    if address.key.is_empty() {
        return Ok(None);
    }
    let (client, key) = (client(address)?, key_of(address)?);
    match runtime()?.block_on(client.head(&key)) {
        Ok(meta) => Ok(Some(Object {
            address: address.clone(),
            n_bytes: meta.size,
            etag: meta.e_tag.unwrap_or_default(),
        })),
        Err(e @ object_store::Error::NotFound { .. })
            if !e.to_string().contains("NoSuchBucket") =>
        {
            Ok(None)
        }
        Err(e) => Err(refusal(address, &e)),
    }
}

/// Downloads an object into a new file, which gets its name only when it is complete.
///
/// # Errors
/// When the store refuses, the object changes during the download, or the disk cannot be written.
pub fn get(object: &Object, to: &Path, is_told: bool) -> Result<()> {
    let (client, key) = (client(&object.address)?, key_of(&object.address)?);
    let name = object.address.to_string();
    let cannot = |e: std::io::Error| Error::file(to, format!("cannot be written ({e})"));
    if let Some(directory) = to.parent() {
        std::fs::create_dir_all(directory).map_err(cannot)?;
    }
    let partial = to.with_file_name(format!(".part-{}", object.address.name()));
    let mut file = File::create(&partial).map_err(cannot)?;
    let mut n_held = 0;
    while n_held < object.n_bytes {
        let end = (n_held + PIECE).min(object.n_bytes);
        let options = object_store::GetOptions {
            range: Some((n_held..end).into()),
            if_match: Some(object.etag.clone()).filter(|etag| !etag.is_empty()),
            ..Default::default()
        };
        let piece =
            runtime()?.block_on(async { client.get_opts(&key, options).await?.bytes().await });
        let piece = piece.map_err(|e| match e {
            object_store::Error::Precondition { .. } => {
                Error::file(&name, "changed while it was read: run it again")
            }
            e => refusal(&object.address, &e),
        })?;
        file.write_all(&piece).map_err(cannot)?;
        n_held += piece.len() as u64;
        if is_told {
            tell(Fetched {
                file: &name,
                n_bytes: n_held,
                n_all: Some(object.n_bytes),
            });
        }
        if piece.is_empty() {
            return Err(Error::file(&name, "ends before its size: run it again"));
        }
    }
    drop(file);
    std::fs::rename(&partial, to).map_err(cannot)
}

/// Writes an object, completely or not at all.
///
/// # Errors
/// When the store refuses, or cannot be reached.
pub fn put(address: &Address, content: Vec<u8>) -> Result<()> {
    let (client, key) = (client(address)?, key_of(address)?);
    let put = runtime()?.block_on(client.put(&key, content.into()));
    put.map(drop).map_err(|e| refusal(address, &e))
}
