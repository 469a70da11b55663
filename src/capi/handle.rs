//! Handles: numbers for objects, checked at each use.
//!
//! A handle holds the kind of its object, a place in the table and the generation of that place, which grows whenever an object there
//! is freed. Invariant: no two objects of one process ever have the same handle, until 2^32 have been freed from one place; such a
//! place is used no more.

use crate::status::Failure;
use std::sync::{Arc, Mutex, MutexGuard};

/// Options of a compilation. Zero is no options: the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub id: u64,
}

/// A compiled model that is ready to run. Zero is not a session.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    pub id: u64,
}

/// Bits of the place in a handle; above them stand the generation, then the kind.
const PLACE_BITS: u32 = 24;
const GENERATION_BITS: u32 = 32;

/// Objects of one kind, by their handles.
pub struct Table<T> {
    /// A number from 1 on that no other table has.
    kind: u64,
    /// Name of the objects in messages.
    what: &'static str,
    slots: Mutex<Vec<Slot<T>>>,
}

struct Slot<T> {
    generation: u32,
    object: Option<Arc<T>>,
}

impl<T> Table<T> {
    /// An empty table.
    pub const fn new(kind: u64, what: &'static str) -> Table<T> {
        Table { kind, what, slots: Mutex::new(vec![]) }
    }

    /// Keeps an object; returns its handle.
    ///
    /// # Errors
    /// `Limit` where there are 2^24 objects.
    pub fn add(&self, object: T) -> Result<u64, Failure> {
        let mut slots = self.lock();
        let free = slots.iter().position(|slot| slot.object.is_none() && slot.generation < u32::MAX);
        let place = free.unwrap_or(slots.len());
        if place >= 1 << PLACE_BITS {
            return Err(Failure::limit(format!("more than {} {}", 1 << PLACE_BITS, self.what)));
        }
        if free.is_none() {
            slots.push(Slot { generation: 0, object: None });
        }
        slots[place].object = Some(Arc::new(object));
        let generation = u64::from(slots[place].generation);
        Ok(self.kind << (PLACE_BITS + GENERATION_BITS) | generation << PLACE_BITS | place as u64)
    }

    /// The object of a handle. It lives as long as somebody uses it, even where it is freed meanwhile.
    ///
    /// # Errors
    /// `NoHandle` where there is none.
    pub fn get(&self, handle: u64) -> Result<Arc<T>, Failure> {
        let mut slots = self.lock();
        let object = self.slot(&mut slots, handle).and_then(|slot| slot.object.clone());
        object.ok_or_else(|| self.unknown(handle))
    }

    /// Puts another object in the place of one, under its handle.
    ///
    /// # Errors
    /// `NoHandle` where there is none.
    pub fn change(&self, handle: u64, change: impl FnOnce(&T) -> T) -> Result<(), Failure> {
        let mut slots = self.lock();
        let slot = self.slot(&mut slots, handle);
        match slot.and_then(|slot| slot.object.as_mut()) {
            Some(object) => {
                *object = Arc::new(change(object));
                Ok(())
            }
            None => Err(self.unknown(handle)),
        }
    }

    /// Forgets an object.
    ///
    /// # Errors
    /// `NoHandle` where there is none.
    pub fn remove(&self, handle: u64) -> Result<(), Failure> {
        let mut slots = self.lock();
        let object = self.slot(&mut slots, handle).and_then(|slot| {
            let object = slot.object.take()?;
            slot.generation += 1;
            Some(object)
        });
        // what the object holds is given back without the lock
        drop(slots);
        object.map(drop).ok_or_else(|| self.unknown(handle))
    }

    fn slot<'a>(&self, slots: &'a mut [Slot<T>], handle: u64) -> Option<&'a mut Slot<T>> {
        let slot = slots.get_mut((handle & ((1 << PLACE_BITS) - 1)) as usize)?;
        let generation = handle >> PLACE_BITS & u64::from(u32::MAX);
        let fits = handle >> (PLACE_BITS + GENERATION_BITS) == self.kind && generation == u64::from(slot.generation);
        fits.then_some(slot)
    }

    fn unknown(&self, handle: u64) -> Failure {
        match handle {
            0 => Failure::no_handle(format!("the handle of {} is zero", self.what)),
            _ => Failure::no_handle(format!("{handle:#x} is not a handle of {}, or was freed", self.what)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Slot<T>>> {
        self.slots.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_handle_is_not_that_of_a_later_object() {
        let (numbers, words) = (Table::new(1, "numbers"), Table::new(2, "words"));
        let one = numbers.add(1).unwrap();
        let held = numbers.get(one).unwrap();
        numbers.remove(one).unwrap();
        let two = numbers.add(2).unwrap();
        assert_eq!(one & 0xff_ffff, two & 0xff_ffff, "the place is used again");
        assert_eq!((*held, *numbers.get(two).unwrap()), (1, 2));
        numbers.change(two, |n| n + 5).unwrap();
        assert_eq!(*numbers.get(two).unwrap(), 7);
        for wrong in [0, one, two + 1, two ^ 1 << 60, u64::MAX] {
            assert!(numbers.get(wrong).is_err() && numbers.remove(wrong).is_err());
            assert!(numbers.change(wrong, |n| *n).is_err());
        }
        let word = words.add("w").unwrap();
        assert!(numbers.get(word).is_err() && words.get(two).is_err());
    }
}
