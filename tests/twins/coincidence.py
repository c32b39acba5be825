"""Plain NumPy twins of coincidence models: pair by pair, in extended precision."""

from __future__ import annotations

import numpy as np

from tests.twins.pairs import WIDE


def log_coincidence(q, kappa_sq, noise, p):
    """Return log P of coinciding, eq. (5) of the paper."""
    spread = WIDE(kappa_sq) + 2 * WIDE(noise)
    return WIDE(p) / 2 * np.log(WIDE(kappa_sq) / spread) - WIDE(q) / (2 * spread)


class Sums:
    """Value, slopes and EM step of pairs (m, 2, D), alike (m,), with kappa^2 of each (m,)."""

    def __init__(self, W, noise, pairs, coincide, kappa_sq):
        self.W, self.noise = np.asarray(W, WIDE), WIDE(noise)
        p, n_features = self.W.shape
        self.n_pairs, self.p = len(pairs), p
        self.value = self.gamma_sum = self.moment = WIDE(0)
        self.H, self.S = np.zeros((n_features, n_features), WIDE), np.zeros((n_features,) * 2, WIDE)
        self.slope = WIDE(0)
        for (x, other), same, k_sq in zip(np.asarray(pairs, WIDE), coincide, kappa_sq, strict=True):
            delta = x - other
            q = ((self.W @ delta) ** 2).sum()
            tau = self.noise / (WIDE(k_sq) + 2 * self.noise)
            log_p = log_coincidence(q, k_sq, noise, p)
            with np.errstate(over="ignore"):  # P = 0: no odds
                odds = 1 / np.expm1(-log_p)
            gamma = tau if same else -tau * odds
            self.value += log_p if same else np.log(-np.expm1(log_p))
            self.H += gamma * np.outer(delta, delta)
            self.S += np.outer(delta, delta)
            self.gamma_sum += gamma
            self.moment += gamma * tau * q
            self.slope += gamma * (tau * q - p * self.noise) / self.noise**2

    def gradient(self):
        """Return the derivatives with respect to W and sigma^2, [COI-3]."""
        return -self.W @ self.H / self.noise, self.slope

    def em_step(self):
        """Return W and sigma^2 after a step, [COI-4]."""
        H, inverse = self.H.astype(float), np.linalg.pinv(self.S.astype(float), hermitian=True)
        W, noise, size = self.W.astype(float), float(self.noise), self.p * self.n_pairs
        explained = float(self.moment) - np.trace(W @ H @ inverse @ H @ W.T)
        shrunk = noise * (1 - 2 * float(self.gamma_sum) / self.n_pairs)
        return W - 2 * W @ H @ inverse, shrunk + 2 * explained / size


def impostors(Z, y, reach):
    """Return the set of pairs (i, j) of different classes with |z_i - z_j|^2 < reach[i]."""
    n = len(Z)
    return {
        (i, j)
        for i in range(n)
        for j in range(n)
        if y[i] != y[j] and ((Z[i] - Z[j]) ** 2).sum() < reach[i]
    }


def online_steps(W, noise, batches):
    """Return W and sigma^2 after a step by each batch of pairs (m, 2, D), alike (m,); kappa = 1."""
    W, log_noise, size = np.array(W, float), float(np.log(noise)), None
    squares, count = np.zeros(W.shape[1]), 0
    means, powers = [np.zeros(W.shape), 0.0], [0.0, 0.0]
    for t, (pairs, coincide) in enumerate(batches):
        slopes = Sums(W, np.exp(log_noise), pairs, coincide, np.ones(len(pairs))).gradient()
        squares, count = (
            squares + ((pairs[:, 0] - pairs[:, 1]) ** 2).sum(axis=0),
            count + len(pairs),
        )
        units = np.sqrt(squares / count)
        live = units > 0
        size = size or np.sqrt(((W * units) ** 2).sum() / (len(W) * live.sum()))
        inverse = np.where(live, 1 / np.where(live, units, 1), 0)
        moves = [slopes[0].astype(float) * inverse, float(slopes[1]) * np.exp(log_noise)]
        entries = [len(W) * live.sum(), 1]
        for k in (0, 1):
            means[k] = 0.9 * means[k] + 0.1 * moves[k]
            powers[k] = 0.99 * powers[k] + 0.01 * np.sum(moves[k] ** 2) / entries[k]
            size_of_slope = np.sqrt(powers[k] / (1 - 0.99 ** (t + 1)))
            moves[k] = 0.1 / np.sqrt(1 + t / 50) * means[k] / (1 - 0.9 ** (t + 1)) / size_of_slope
        W, log_noise = W + size * moves[0] * inverse, log_noise + moves[1]
    return W, float(np.exp(log_noise))
