//! A request's work: products of matrices, under the lock of the CPU it began on.

use std::hint::{black_box, spin_loop};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// The side of matrices of which three take so many KiB.
pub(super) fn side(footprint_kib: u32) -> usize {
    let numbers = u64::from(footprint_kib) * 1024 / 3 / size_of::<u64>() as u64;
    numbers.isqrt() as usize
}

/// Two factors and their product, by rows.
pub(super) struct Matrices {
    side: usize,
    left: Vec<u64>,
    right: Vec<u64>,
    product: Vec<u64>,
}

impl Matrices {
    pub(super) fn new(footprint_kib: u32) -> Self {
        let side = side(footprint_kib);
        let numbers = |from: u64| (0..(side * side) as u64).map(|n| n + from).collect();
        Matrices {
            side,
            left: numbers(1),
            right: numbers(2),
            product: vec![0; side * side],
        }
    }

    /// Multiplies in the naive order, which goes through the right factor by
    /// columns: all of the footprint is touched again for each row.
    pub(super) fn multiply(&mut self) {
        let side = self.side;
        // Nothing of an earlier product may be known.
        let (left, right) = (black_box(&self.left), black_box(&self.right));
        for (row, out) in left
            .chunks_exact(side)
            .zip(self.product.chunks_exact_mut(side))
        {
            for (column, out) in out.iter_mut().enumerate() {
                let column = right[column..].iter().step_by(side);
                let terms = row.iter().zip(column).map(|(a, b)| a.wrapping_mul(*b));
                *out = terms.fold(0, u64::wrapping_add);
            }
        }
        black_box(&self.product);
    }
}

/// A lock for each CPU.
pub(super) struct CpuLocks(Vec<Mutex<()>>);

impl CpuLocks {
    /// For CPUs 0 to `cpus` - 1.
    pub(super) fn new(cpus: u32) -> Self {
        CpuLocks((0..cpus.max(1)).map(|_| Mutex::new(())).collect())
    }

    /// Takes the lock of the CPU that this thread is on; spins for it, as those do
    /// who expect it to be free in a moment.
    pub(super) fn here(&self) -> MutexGuard<'_, ()> {
        loop {
            let cpu = cpu();
            let guard = self.spin(cpu);
            // Who was moved meanwhile has another CPU's.
            if self.index(cpu) == self.index(self::cpu()) {
                return guard;
            }
        }
    }

    fn spin(&self, cpu: usize) -> MutexGuard<'_, ()> {
        loop {
            match self.0[self.index(cpu)].try_lock() {
                Ok(guard) => return guard,
                // It protects no data that a panic could leave half-changed.
                Err(TryLockError::Poisoned(poison)) => return poison.into_inner(),
                Err(TryLockError::WouldBlock) => spin_loop(),
            }
        }
    }

    /// CPUs beyond the last share; the cpuset leaves none.
    fn index(&self, cpu: usize) -> usize {
        cpu % self.0.len()
    }
}

fn cpu() -> usize {
    nix::sched::sched_getcpu().expect("Linux knows on which CPU a thread runs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_matrices_fit_the_footprint() {
        // 104² numbers of 8 bytes, three times: 253.5 KiB.
        assert_eq!(side(256), 104);
        assert_eq!(side(1), 6);
        assert_eq!(side(0), 0);
    }

    #[test]
    fn the_product_is_that_of_the_factors() {
        let mut matrices = Matrices {
            side: 2,
            left: vec![1, 2, 3, 4],
            right: vec![5, 6, 7, 8],
            product: vec![0; 4],
        };
        matrices.multiply();
        assert_eq!(matrices.product, [19, 22, 43, 50]);
    }

    #[test]
    fn a_cpu_s_lock_lets_one_thread_in() {
        // One lock for all CPUs of this machine.
        let locks = CpuLocks::new(1);
        let inside = Mutex::new(());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let _guard = locks.here();
                        let _alone = inside.try_lock().expect("nobody else is inside");
                        // Long enough for others to come, were they let in.
                        std::thread::sleep(std::time::Duration::from_micros(200));
                    }
                });
            }
        });
    }
}
