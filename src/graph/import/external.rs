//! External tensors: reads the bytes of a TensorProto from a file beside the model.
//!
//! Invariant: no file outside of the model's folder is read, all links followed.

use crate::graph::proto::TensorProto;
use crate::graph::synthetic::Recipe;
use crate::runtime::{Error, Result};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

/// The folder of a model.
pub(super) struct Folder {
    path: PathBuf,
    /// Folders whose files belong to the model.
    roots: Vec<PathBuf>,
}

impl Folder {
    pub fn new(path: &Path) -> Folder {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Folder { path: path.to_path_buf(), roots: path.canonicalize().into_iter().collect() }
    }

    /// The folder of a model file. Where that is a link, as in a cache of downloads, the data may lie beside what it
    /// leads to.
    pub fn of_file(file: &Path) -> Folder {
        let mut folder = Folder::new(file.parent().unwrap_or(Path::new("")));
        folder.roots.extend(file.canonicalize().ok().and_then(|f| f.parent().map(Path::to_path_buf)));
        folder
    }

    /// The `bytes` bytes of a tensor that is stored outside of the message.
    pub fn read(&self, proto: &TensorProto, bytes: usize) -> Result<Vec<u8>> {
        let entry = |key: &str| proto.external_data.iter().find(|e| e.key == key).map(|e| e.value.as_str());
        let location =
            entry("location").ok_or_else(|| Error::Invalid("it is external but names no location".into()))?;
        let entries = proto.external_data.iter().map(|e| (e.key.as_str(), e.value.as_str()));
        if let Some(recipe) = Recipe::parse(entries)? {
            if proto.data_type != 1 {
                return Err(Error::Unsupported("synthetic weights of another type than f32".into()));
            }
            return Ok(recipe.fill(bytes / 4).into_iter().flat_map(f32::to_le_bytes).collect());
        }
        let number = |key: &str| -> Result<Option<u64>> {
            let wrong = |v| Error::Invalid(format!("its external {key} `{v}` is not a number"));
            entry(key).map(|v| v.parse().map_err(|_| wrong(v))).transpose()
        };
        let offset = number("offset")?.unwrap_or(0);
        if let Some(length) = number("length")?
            && length != bytes as u64
        {
            return Err(Error::Invalid(format!("it needs {bytes} bytes, but its external length is {length}")));
        }
        self.read_at(location, offset, bytes)
    }

    fn read_at(&self, location: &str, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let fail = |reason: String| Error::Io(format!("external file `{location}`: {reason}"));
        let path = self.path.join(location);
        let inside = Path::new(location).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        let real = if inside { path.canonicalize().map_err(|e| fail(e.to_string()))? } else { path };
        if !inside || !self.roots.iter().any(|root| real.starts_with(root)) {
            return Err(Error::Invalid(format!("external file `{location}` lies outside of the model's folder")));
        }
        if !real.metadata().is_ok_and(|m| m.is_file()) {
            return Err(fail("it is not a regular file".into()));
        }
        let mut file = File::open(&real).map_err(|e| fail(e.to_string()))?;
        let size = file.metadata().map_err(|e| fail(e.to_string()))?.len();
        if offset.checked_add(bytes as u64).is_none_or(|end| end > size) {
            return Err(fail(format!("{bytes} bytes at offset {offset} are past its end ({size} bytes)")));
        }
        let mut data = vec![0; bytes];
        let read = file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut data));
        read.map_err(|e| fail(e.to_string()))?;
        Ok(data)
    }
}
