//! A connected channel: frames that come in are read by a thread, and bodies go straight to files.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::frame;

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
        let mut reader = BufReader::new(stream.try_clone()?);
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
    if n_bytes == 0 {
        return Ok(Frame { header, body: None });
    }
    if n_bytes > LARGEST_BODY {
        let problem = format!("a body of {n_bytes} bytes, expected at most {LARGEST_BODY}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    let path = directory.join(format!("{number}.safetensors"));
    let mut file = File::create(&path)?;
    let n_copied = io::copy(&mut reader.take(n_bytes), &mut file)?;
    if n_copied < n_bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Frame {
        header,
        body: Some(path),
    })
}
