//! Asks the system for the bytes of tensors that will be read soon, so that the disk reads while something else runs.

use std::ops::Range;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use super::data_file::DataFile;
use super::tensor_info::TensorInfo;
use super::tensors::Tensors;

/// Bytes asked for at a time. Linux leaves out what a request has beyond the read-ahead size of its disk, 128 KiB or more.
const AT_ONCE: usize = 1 << 17;

/// Bytes of a file.
type Place = (DataFile, Range<usize>);

/// A thread that asks for bytes, so that nobody waits while the disk's queue is full. It ends when this is dropped.
#[derive(Debug)]
pub struct Ahead(Option<SyncSender<Vec<Place>>>);

impl Ahead {
    /// Begins without a request.
    pub fn begin() -> Self {
        // One list of tensors is in work, and one waits: more would fill memory with weights that are used much later.
        let (sender, places) = sync_channel::<Vec<Place>>(1);
        let ask = move || {
            for (file, bytes) in places.into_iter().flatten() {
                for start in bytes.clone().step_by(AT_ONCE) {
                    file.will_read(start..bytes.end.min(start + AT_ONCE));
                }
            }
        };
        let thread = thread::Builder::new().name("read ahead".to_owned());
        Self(thread.spawn(ask).ok().map(|_| sender))
    }

    /// Asks for tensors that will be read soon. Returns at once; a request is left out while two are in work.
    pub fn ask<'a>(&self, tensors: &Tensors, names: impl IntoIterator<Item = &'a str>) {
        let Some(sender) = &self.0 else {
            return;
        };
        let infos = names.into_iter().filter_map(|name| tensors.info(name));
        let places: Vec<Place> = infos.flat_map(|info| tensors.places(info)).collect();
        if !places.is_empty() && sender.try_send(places).is_err() {
            log::debug!("reading ahead: the disk is behind");
        }
    }
}

impl Tensors {
    /// The bytes that a tensor is read from.
    fn places(&self, info: &TensorInfo) -> Vec<Place> {
        if let Some(made) = &info.made {
            let parts = made.parts().into_iter();
            return parts.flat_map(|part| self.places(part)).collect();
        }
        let scales = info.scales.as_ref();
        let scales = scales.map(|scales| (scales.file_idx, scales.bytes.clone()));
        let own = (info.file_idx, info.bytes.clone());
        let all = std::iter::once(own).chain(scales);
        all.filter_map(|(file_idx, bytes)| Some((self.files.get(file_idx)?.clone(), bytes)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_places_of_a_tensor_are_all_bytes_that_it_is_read_from() {
        let values = |n: u8| -> Vec<u8> { vec![n; 24] };
        let (a, b) = (values(1), values(2));
        let view = |bytes| {
            let shape = vec![2, 3];
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape, bytes)
                .expect("a tensor")
        };
        let views = BTreeMap::from([("a", view(&a)), ("b", view(&b))]);
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("model.safetensors");
        safetensors::serialize_to_file(views, None, &path).expect("writes");
        let mut tensors = crate::safetensors::open_file(&path).expect("opens");
        assert!(tensors.join(&["b".to_owned(), "a".to_owned()], "both"));
        let read = |name: &str| -> Vec<u8> {
            let places = tensors.places(tensors.info(name).expect("a tensor"));
            let bytes = places.iter().map(|(file, bytes)| file.read(bytes.clone()));
            bytes
                .flat_map(|of| of.expect("reads").into_owned())
                .collect()
        };
        assert_eq!(read("a"), a);
        assert_eq!(read("both"), [b, a].concat());
        // Asking changes nothing, also of a file that is gone.
        std::fs::remove_file(&path).expect("removes");
        let ahead = Ahead::begin();
        (0..50).for_each(|_| ahead.ask(&tensors, ["a", "both", "none"]));
        assert_eq!(read("b"), values(2));
    }
}
