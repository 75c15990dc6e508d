"""Images by mujoco_warp's batch renderer: their layout, and the function that renders them."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import mujoco
import mujoco_warp as mjw
import warp as wp

from mjx_warp_ffi.mjx.warp.ffi import Array
from mjx_warp_ffi.mjx.warp.functions.computed import Computed
from mjx_warp_ffi.mjx.warp.staging.workspace import Workspace
from mjx_warp_ffi.third_party.warp.process import guard

Settings = tuple[tuple[str, Any], ...]

_POSES = (
  *("geom_xpos", "geom_xmat", "cam_xpos", "cam_xmat", "light_xpos", "light_xdir"),
  "flexvert_xpos",
)


class Layout(NamedTuple):
  """Where the images of the cameras lie in the packed pixels of one world.

  Attributes:
    sizes: (width, height) of each active camera.
    rgb: first pixel of each camera, -1 if it has no such image.
    depth: likewise.
    segmentation: likewise.
    pixels: numbers of packed pixels: rgb, depth, segmentation.
  """

  sizes: tuple[tuple[int, int], ...]
  rgb: tuple[int, ...]
  depth: tuple[int, ...]
  segmentation: tuple[int, ...]
  pixels: tuple[int, int, int]


def layout(mj_model: mujoco.MjModel, settings: Settings) -> Layout:
  """The layout that mujoco_warp chooses for a model.

  Raises:
    TypeError: for an unknown setting.
    ValueError: for settings that do not fit the model.
  """
  with guard.tracing():
    context = mjw.create_render_context(mj_model, 1, **dict(settings))
  return Layout(
    sizes=tuple((int(w), int(h)) for w, h in context.cam_res.numpy()),
    rgb=tuple(int(a) for a in context.rgb_adr.numpy()),
    depth=tuple(int(a) for a in context.depth_adr.numpy()),
    segmentation=tuple(int(a) for a in context.seg_adr.numpy()),
    pixels=(
      context.rgb_data.shape[1],
      context.depth_data.shape[1],
      context.seg_data.shape[1],
    ),
  )


def _render(w: Workspace, *out: wp.array, settings: Settings, kinds: tuple[str, ...]) -> None:
  if "context" not in w.memo:
    w.memo["context"] = mjw.create_render_context(
      w.plan.spec.mj_model, w.plan.nworld, **dict(settings)
    )
  context = w.memo["context"]
  w.begin()
  mjw.refit_bvh(w.m, w.d, context)
  mjw.render(w.m, w.d, context)
  for kind, pixels in zip(kinds, out, strict=True):
    wp.copy(pixels, getattr(context, f"{kind}_data"))


@functools.lru_cache(maxsize=64)
def renderer(settings: Settings, pixels: tuple[int, int, int]) -> tuple[tuple[str, ...], Computed]:
  """The kinds of pixels of a layout (rgb, depth, seg), and the function that renders them."""
  dtypes = {"rgb": wp.uint32, "depth": wp.float32, "seg": wp.vec2i}
  arrays = [Array(k, (n,), dtypes[k]) for k, n in zip(dtypes, pixels, strict=True) if n]
  kinds = tuple(a.name for a in arrays)
  function = Computed(
    functools.partial(_render, settings=settings, kinds=kinds),
    "render",
    tuple(arrays),
    reads=lambda m: _POSES,
    static=settings,
    captured=False,  # a graph on the CPU does not record the refit of a tree of boxes
  )
  return kinds, function
