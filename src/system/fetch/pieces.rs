//! The bytes of a response, piece by piece. A stalled server is given up, but the whole response may take any time.

use std::io::{self, ErrorKind, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

/// Longest time without data, unless the environment variable of the hub's tools overrides it.
const STALL: Duration = Duration::from_secs(30);
const STALL_SET_BY: &str = "HF_HUB_DOWNLOAD_TIMEOUT";
/// Most bytes of a piece, and most pieces in the queue.
const PIECE: usize = 1 << 16;
const N_WAITING: usize = 4;

/// Returns the longest time without data.
pub fn stall() -> Duration {
    let set = std::env::var(STALL_SET_BY).ok();
    let seconds = set.and_then(|seconds| seconds.trim().parse::<u32>().ok());
    let seconds = seconds.filter(|seconds| *seconds > 0);
    seconds.map_or(STALL, |seconds| Duration::from_secs(seconds.into()))
}

/// Pieces read by a thread. If they are no longer taken, the thread ends with its next read.
pub struct Pieces(Receiver<io::Result<Vec<u8>>>);

impl Pieces {
    pub fn of(mut from: impl Read + Send + 'static) -> Self {
        let (to, pieces) = sync_channel(N_WAITING);
        thread::spawn(move || {
            let mut bytes = vec![0; PIECE];
            loop {
                let read = from.read(&mut bytes).map(|n| bytes[..n].to_vec());
                let is_last = read.as_ref().map_or(true, Vec::is_empty);
                if to.send(read).is_err() || is_last {
                    break;
                }
            }
        });
        Self(pieces)
    }

    /// Returns the next bytes; empty at the end.
    ///
    /// # Errors
    /// When the connection breaks, or no data arrives in time.
    pub fn next(&mut self, patience: Duration) -> io::Result<Vec<u8>> {
        match self.0.recv_timeout(patience) {
            Ok(read) => read,
            Err(RecvTimeoutError::Timeout) => {
                let problem = format!("nothing came for {} s", patience.as_secs());
                Err(io::Error::new(ErrorKind::TimedOut, problem))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends once, then nothing until the other end is gone.
    struct Stalls(Receiver<()>, bool);

    impl Read for Stalls {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            if !std::mem::replace(&mut self.1, true) {
                bytes[0] = 7;
                return Ok(1);
            }
            let _ = self.0.recv();
            Ok(0)
        }
    }

    #[test]
    fn a_stalled_server_is_given_up() {
        let (_kept, wait) = std::sync::mpsc::channel();
        let mut pieces = Pieces::of(Stalls(wait, false));
        let patience = Duration::from_millis(300);
        assert_eq!(pieces.next(Duration::from_secs(60)).expect("a piece"), [7]);
        let said = pieces.next(patience).expect_err("gives up");
        assert_eq!(said.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn all_bytes_arrive_in_order() {
        let sent: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
        let mut pieces = Pieces::of(io::Cursor::new(sent.clone()));
        let mut found = Vec::new();
        loop {
            let piece = pieces.next(Duration::from_secs(60)).expect("a piece");
            if piece.is_empty() {
                break;
            }
            found.extend(piece);
        }
        assert_eq!(found, sent);
    }
}
