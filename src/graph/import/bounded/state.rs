//! Knowledge of an import about dimensions with a capacity: the range of counts that it is right for, the bounded dimensions of each
//! value, and the elements of shapes as forms of the count.
//!
//! Invariant: each decision that was taken for the count of this import holds for all counts of the range.

use crate::graph::ir::ValueId;
use crate::runtime::bounds::Form;
use crate::runtime::{Error, Result};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

/// Beyond the extents that tensors have: larger numbers stand for an end, and sums of smaller ones do not overflow.
pub const FAR: i64 = 1 << 40;

/// The smallest capacity.
pub const LEAST_CAPACITY: i64 = 16;

/// A dimension of a value whose extent is the capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Axis {
    /// Number of the dimension.
    pub axis: usize,
    /// Elements that count.
    pub count: Form,
    /// Elements beyond the count are zeros; otherwise they may be anything.
    pub zero: bool,
}

/// A number that does not depend on the count.
pub fn fixed(number: i64) -> Form {
    Form { factor: 0, offset: number }
}

/// Returns true if a number does not depend on the count.
pub fn is_fixed(form: Form) -> bool {
    form.factor == 0
}

/// `a + sign · b`.
pub fn sum(a: Form, b: Form, sign: i64) -> Result<Form> {
    let combined = |a: i64, b: i64| b.checked_mul(sign).and_then(|b| a.checked_add(b));
    match (combined(a.factor, b.factor), combined(a.offset, b.offset)) {
        (Some(factor), Some(offset)) => Ok(Form { factor, offset }),
        _ => Err(Error::Unsupported("a size is larger than any tensor".into())),
    }
}

/// The product, where one of them is fixed.
pub fn product(a: Form, b: Form) -> Option<Form> {
    let (form, number) = match (a.factor, b.factor) {
        (0, _) => (b, a.offset),
        (_, 0) => (a, b.offset),
        _ => return None,
    };
    Some(Form { factor: form.factor.checked_mul(number)?, offset: form.offset.checked_mul(number)? })
}

/// The knowledge of an import with a capacity.
pub struct Bounded {
    /// Extent of every bounded dimension.
    pub capacity: i64,
    /// The count that the import is for.
    pub import_count: i64,
    /// Dynamic dimensions that grow, and their sizes.
    pub dims: BTreeMap<String, Form>,
    /// The input that holds the count.
    pub count: ValueId,
    /// Name of that input.
    pub input: String,
    /// Bounded dimensions of values that have some, sorted.
    pub axes: HashMap<ValueId, Vec<Axis>>,
    /// Elements of small integer tensors that depend on the count.
    pub forms: HashMap<ValueId, Vec<Form>>,
    /// Values that hold a form, and masks of what counts.
    pub made: RefCell<HashMap<(Form, bool), ValueId>>,
    range: Cell<(i64, i64)>,
    /// Extents that have to be within the capacity.
    extents: RefCell<Vec<Form>>,
    /// An extent is beyond the capacity.
    full: Cell<bool>,
}

impl Bounded {
    /// Knows nothing yet but the sizes of the dimensions that grow.
    pub fn new(
        capacity: i64,
        import_count: i64,
        dims: BTreeMap<String, Form>,
        count: ValueId,
        input: String,
    ) -> Bounded {
        Bounded {
            capacity,
            import_count,
            dims,
            count,
            input,
            axes: HashMap::new(),
            forms: HashMap::new(),
            made: RefCell::default(),
            range: Cell::new((0, capacity)),
            extents: RefCell::default(),
            full: Cell::new(false),
        }
    }

    /// Decides whether a number is at least 0; the import is right for the counts of which the same is true.
    pub fn not_negative(&self, form: Form) -> Result<bool> {
        let holds = form.at(self.import_count) >= 0;
        let kept = if holds { form } else { sum(fixed(-1), form, -1)? };
        // the largest count, or the negated smallest one, where one of them follows
        let (factor, offset) = (i128::from(kept.factor), i128::from(kept.offset));
        let edge = if factor == 0 { 0 } else { offset.div_euclid(factor.abs()) };
        let edge = edge.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let (low, high) = self.range.get();
        self.range.set(match kept.factor {
            0 => (low, high),
            1.. => (low.max(edge.saturating_neg()), high),
            _ => (low, high.min(edge)),
        });
        Ok(holds)
    }

    /// Decides whether a number is 0; the import is right for the counts of which the same is true.
    pub fn is_zero(&self, form: Form) -> Result<bool> {
        let above = self.not_negative(form)?;
        let below = self.not_negative(sum(fixed(0), form, -1)?)?;
        Ok(above && below)
    }

    /// Requires that a number is at least `least`.
    ///
    /// # Errors
    /// `Unsupported` where it is not.
    pub fn require(&self, form: Form, least: i64) -> Result<()> {
        match self.not_negative(sum(form, fixed(least), -1)?)? {
            true => Ok(()),
            false => {
                Err(Error::Unsupported(format!("a dimension that grows has {} elements", form.at(self.import_count))))
            }
        }
    }

    /// Requires that an extent is within the capacity.
    ///
    /// # Errors
    /// `Unsupported` where it is not.
    pub fn fit(&self, extent: Form) -> Result<()> {
        self.extents.borrow_mut().push(extent);
        let fits = self.not_negative(sum(fixed(self.capacity), extent, -1)?)? && self.not_negative(extent)?;
        if !fits {
            self.full.set(true);
            return Err(Error::Unsupported(format!(
                "{} elements are beyond the capacity {}",
                extent.at(self.import_count),
                self.capacity
            )));
        }
        Ok(())
    }

    /// Returns true if a larger capacity may help.
    pub fn is_full(&self) -> bool {
        self.full.get()
    }

    /// The counts that the import is right for.
    pub fn range(&self) -> (i64, i64) {
        self.range.get()
    }

    /// The smallest count of the range that half the capacity would not hold.
    pub fn beyond_half(&self) -> i64 {
        let (mut least, mut most) = (self.range.get().0, self.import_count);
        if self.capacity <= LEAST_CAPACITY {
            return least;
        }
        let extents = self.extents.borrow();
        let fits = |count: i64| extents.iter().all(|extent| extent.at(count) <= self.capacity / 2);
        // extents grow with the count
        while least < most {
            let middle = least + (most - least) / 2;
            (least, most) = if fits(middle) { (middle + 1, most) } else { (least, middle) };
        }
        least
    }
}
