"""Words spoken by espeak-ng, and their cepstral coefficients (MFCC)."""

import subprocess
from dataclasses import dataclass
from math import gcd

import numpy as np
from scipy.fft import dct
from scipy.signal import get_window, resample_poly

RATE_HZ, WINDOW, HOP = 16_000, 640, 320
"""40 ms windows every 20 ms: 49 frames of a second, as in MLPerf Tiny's keyword spotting."""

BANDS, COEFFICIENTS = 40, 10


@dataclass(frozen=True)
class Speaker:
    """A voice of espeak-ng, such as ``en-us+m3``."""

    voice: str
    words_per_minute: int = 160
    pitch: int = 50


def speak(word: str, speaker: Speaker) -> np.ndarray:
    """A second of sound, shape (16000,), the word in the middle; largest magnitude 1."""
    command = ["espeak-ng", "-v", speaker.voice, "-s", str(speaker.words_per_minute)]
    command += ["-p", str(speaker.pitch), "--stdout", word]
    wav = subprocess.run(command, check=True, capture_output=True).stdout
    header = 44  # of a wav file on a pipe, which has no length
    rate = int.from_bytes(wav[24:28], "little")
    sound = np.frombuffer(wav[header : len(wav) // 2 * 2], "<i2").astype(np.float64)
    divisor = gcd(RATE_HZ, rate)
    sound = resample_poly(sound, RATE_HZ // divisor, rate // divisor)
    loud = np.flatnonzero(np.abs(sound) > 0.02 * np.abs(sound).max())
    sound = sound[loud[0] : loud[0] + min(loud[-1] + 1 - loud[0], RATE_HZ)]
    left = (RATE_HZ - len(sound)) // 2
    return np.pad(sound, (left, RATE_HZ - len(sound) - left)) / np.abs(sound).max()


def disturb(sound: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The sound, moved by up to 100 ms, with noise 10 to 25 dB below it."""
    moved = np.roll(sound, rng.integers(-RATE_HZ // 10, RATE_HZ // 10))
    noise = rng.standard_normal(len(sound))
    level = np.sqrt(np.mean(sound**2)) * 10 ** (-rng.uniform(10, 25) / 20)
    return moved + level * noise


def mel_filters() -> np.ndarray:
    """Triangles on the mel scale from 20 Hz to 4 kHz, shape (BANDS, WINDOW // 2 + 1)."""
    mel = np.linspace(*(2595 * np.log10(1 + np.array([20, 4000]) / 700)), BANDS + 2)
    corners = 700 * (10 ** (mel / 2595) - 1)
    hz = np.fft.rfftfreq(WINDOW, 1 / RATE_HZ)
    low, mid, high = (corners[k : k + BANDS, None] for k in range(3))
    return np.clip(np.minimum((hz - low) / (mid - low), (high - hz) / (high - mid)), 0, None)


def features(sound: np.ndarray) -> np.ndarray:
    """MFCC of a second, float32 of shape (1, 49, 10): window, power, mel bands, log, cosines."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, WINDOW)[::HOP]
    power = np.abs(np.fft.rfft(frames * get_window("hann", WINDOW))) ** 2
    bands = np.log(power @ mel_filters().T + 1e-3)
    return (dct(bands, norm="ortho")[None, :, :COEFFICIENTS] / 10).astype(np.float32)
