//! A connected channel: frames that come in are read by a thread. Bodies go straight to files, or are files that the other end left.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::frame;

/// Bytes that are read at a time.
const AT_ONCE: usize = 1 << 18;
/// Most bytes of a body: more is not the trace of a prompt that a person looks at.
const LARGEST_BODY: u64 = 16 << 30;

/// What came over the channel.
pub struct Frame {
    pub header: Value,
    /// A file with the bytes behind the header.
    pub body: Option<PathBuf>,
}

/// What a wait for a frame ended with.
pub enum Waited {
    Frame(Frame),
    /// Nothing came yet.
    Nothing,
    /// The other end is gone; says why if that is known.
    Gone(Option<String>),
}

/// One end of a channel.
pub struct Channel {
    stream: UnixStream,
    frames: Receiver<io::Result<Frame>>,
}

impl Channel {
    /// Listens on a connected stream; bodies become files in `directory`.
    ///
    /// # Errors
    /// When the stream cannot be listened to.
    pub fn over(stream: UnixStream, directory: &Path) -> io::Result<Self> {
        let (sender, frames) = channel();
        let mut reader = BufReader::with_capacity(AT_ONCE, stream.try_clone()?);
        let directory = directory.to_path_buf();
        let listen = move || {
            for number in 0_u64.. {
                let read = read(&mut reader, &directory, number);
                let is_over = read.is_err();
                if sender.send(read).is_err() || is_over {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("live channel".to_owned())
            .spawn(listen)?;
        Ok(Self { stream, frames })
    }

    /// Sends a header.
    ///
    /// # Errors
    /// When the other end is gone.
    pub fn send(&self, header: Value) -> io::Result<()> {
        frame::write(&mut &self.stream, header)
    }

    /// Waits for the next frame.
    pub fn wait(&self, at_most: Duration) -> Waited {
        match self.frames.recv_timeout(at_most) {
            Ok(Ok(frame)) => Waited::Frame(frame),
            Ok(Err(e)) if e.kind() == io::ErrorKind::UnexpectedEof => Waited::Gone(None),
            Ok(Err(e)) => Waited::Gone(Some(e.to_string())),
            Err(RecvTimeoutError::Timeout) => Waited::Nothing,
            Err(RecvTimeoutError::Disconnected) => Waited::Gone(None),
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Ends the listening thread as well; an end that is gone already is no problem.
        if let Err(e) = self.stream.shutdown(Shutdown::Both) {
            log::debug!("live channel: {e}");
        }
    }
}

fn read(reader: &mut BufReader<UnixStream>, directory: &Path, number: u64) -> io::Result<Frame> {
    let (header, n_bytes) = frame::read_header(reader)?;
    let name = header.get("file").and_then(Value::as_str);
    let name = name.filter(|_| header["kind"] == "done" && n_bytes == 0);
    if let Some(name) = name {
        let path = left(directory, name)?;
        return Ok(Frame {
            header,
            body: Some(path),
        });
    }
    if n_bytes == 0 {
        return Ok(Frame { header, body: None });
    }
    if n_bytes > LARGEST_BODY {
        let problem = format!("a body of {n_bytes} bytes, expected at most {LARGEST_BODY}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    let path = directory.join(format!("{number}.safetensors"));
    let mut file = File::create(&path)?;
    let mut n_missing = n_bytes;
    while n_missing > 0 {
        let bytes = reader.fill_buf()?;
        let n = bytes
            .len()
            .min(usize::try_from(n_missing).unwrap_or(usize::MAX));
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.write_all(&bytes[..n])?;
        reader.consume(n);
        n_missing -= n as u64;
    }
    Ok(Frame {
        header,
        body: Some(path),
    })
}

/// The file that the other end left in the directory it was asked to.
fn left(directory: &Path, name: &str) -> io::Result<PathBuf> {
    let path = directory.join(name);
    let mut parts = Path::new(name).components();
    let is_name = matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    );
    // A link could lead anywhere.
    if is_name && path.symlink_metadata().is_ok_and(|about| about.is_file()) {
        return Ok(path);
    }
    let problem = format!("a file {name:?} that is not in {}", directory.display());
    Err(io::Error::new(io::ErrorKind::InvalidData, problem))
}
