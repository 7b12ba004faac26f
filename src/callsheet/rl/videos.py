"""Videos of episodes as GIFs, which every browser and editor shows and which need only Pillow."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callsheet.errors import CallsheetError, UserError
from callsheet.rl.acting.episodes import EpisodeResults, play
from callsheet.rl.acting.policy import Policy
from callsheet.rl.envs import Environments, make
from callsheet.rl.envs.base import Step, seed_of
from callsheet.rl.envs.lookup import explain_missing
from callsheet.rl.settings import Evaluation
from callsheet.store import Store

FOLDER = "evaluations/videos"
MAX_FRAMES = 2_000
"""A video of a longer episode shows its beginning."""
_FRAME_MILLISECONDS = 30
_MAX_PIXELS = 400
"""Of the longer side; larger frames are scaled down by a whole factor."""
_COLORS = 64


@dataclass(frozen=True)
class Video:
    """The recording of one episode."""

    key: str
    """Its key in the run's results."""
    episode_return: float
    steps: int
    cut: bool = False
    """Whether the episode was cut off at the step limit."""


def record(
    env: str,
    policy: Policy,
    store: Store,
    name: str,
    *,
    seed: int,
    options: Mapping[str, Any],
    greedy: bool,
    longest: int = Evaluation().longest,
) -> Video:
    """Play one episode and store its video under a name."""
    # Many simulators draw with SDL, which looks for a screen by default.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    _pillow()
    recorded = RecordedEnvironment(make(env, 1, seed=seed, options=options, render_mode="rgb_array"), env)
    try:
        played = play(recorded, policy, 1, seed=seed, greedy=greedy, longest=longest)
    finally:
        recorded.close()
    key = f"{FOLDER}/{name}.gif"
    store.put(key, recorded.gif())
    return Video(key, played.returns[0], played.steps[0], bool(played.cut))


def play_and_record(
    environments: Environments,
    env: str,
    policy: Policy,
    store: Store,
    *,
    episodes: int,
    videos: int,
    name: str,
    seed: int,
    options: Mapping[str, Any],
    greedy: bool = True,
    longest: int = Evaluation().longest,
) -> tuple[EpisodeResults, list[Video]]:
    """Play episodes and record the first few, which count like the others."""
    videos = min(videos, episodes)
    recorded = [
        record(
            env,
            policy,
            store,
            f"{name}-{one}",
            seed=seed_of(seed, one + 1),
            options=options,
            greedy=greedy,
            longest=longest,
        )
        for one in range(videos)
    ]
    rest = EpisodeResults([], [])
    if episodes > videos:
        rest = play(environments, policy, episodes - videos, seed=seed, greedy=greedy, longest=longest)
    returns = [*(one.episode_return for one in recorded), *rest.returns]
    steps = [*(one.steps for one in recorded), *rest.steps]
    return EpisodeResults(returns, steps, sum(one.cut for one in recorded) + rest.cut), recorded


class RecordedEnvironment:
    """An environment that records a frame at every step."""

    def __init__(self, inner: Environments, name: str) -> None:
        self._inner = inner
        self._name = name
        self._frames: list[Any] = []
        self.spaces, self.count = inner.spaces, inner.count

    @property
    def restarts(self) -> int:
        return self._inner.restarts

    @property
    def masks(self) -> NDArray[np.uint8] | None:
        return self._inner.masks

    def reset(self, seed: int | None = None) -> dict[str, NDArray[Any]]:
        observations = self._inner.reset(seed)
        self._frames.clear()
        self._record()
        return observations

    def step(self, actions: NDArray[Any]) -> Step:
        step = self._inner.step(actions)
        if step.broken[0]:
            self._frames.clear()
        self._record()
        return step

    def frame(self) -> NDArray[np.uint8]:
        return self._inner.frame()

    def close(self) -> None:
        self._inner.close()

    def _record(self) -> None:
        """Keep a small frame: full-size ones of a long episode would fill the memory."""
        if len(self._frames) >= MAX_FRAMES:
            return
        try:
            self._frames.append(shrink(self.frame()))
        except CallsheetError:
            raise
        except Exception as error:  # the simulator's own code may fail in any way
            if isinstance(error, ImportError) or "not installed" in str(error):
                raise explain_missing(self._name, error) from error
            raise UserError(
                f"{self._name} cannot be rendered here: {type(error).__name__}: {error}",
                fix="does it need a screen or a graphics driver? MuJoCo: set MUJOCO_GL=egl or MUJOCO_GL=osmesa",
            ) from error

    def gif(self) -> bytes:
        """The recording."""
        out = io.BytesIO()
        first, *others = self._frames
        first.save(out, "GIF", save_all=True, append_images=others, duration=_FRAME_MILLISECONDS, loop=0)
        return out.getvalue()


def shrink(frame: NDArray[np.uint8]) -> Any:
    """A frame with fewer colors and pixels."""
    pillow = _pillow()
    image = pillow.fromarray(frame)
    factor = -(-max(image.size) // _MAX_PIXELS)
    if factor > 1:
        image = image.reduce(factor)
    return image.quantize(_COLORS, method=pillow.Quantize.FASTOCTREE)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise UserError(
            "videos need Pillow, which is not installed", fix="pip install 'callsheet[video]'"
        ) from None
    return Image
