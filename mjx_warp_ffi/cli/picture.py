"""Pictures for the tools: plots by matplotlib, frames by MuJoCo Warp's ray tracer (no OpenGL)."""

import pathlib
from collections.abc import Sequence

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

from mjx_warp_ffi.cli import common


def import_pyplot():
  """Imports matplotlib's pyplot for writing files.

  Returns:
    The module.

  Raises:
    ToolError: matplotlib is not installed.
  """
  try:
    import matplotlib
  except ImportError as error:
    raise common.ToolError("pictures need matplotlib: pip install 'mjx-warp-ffi[demo]'") from error
  matplotlib.use("agg")
  import matplotlib.pyplot as plt

  return plt


def render(
  mj_model: mujoco.MjModel, qpos: np.ndarray, *, camera: int, size: Sequence[int]
) -> np.ndarray:
  """Renders states of a model, each as one world.

  Args:
    mj_model: the model, with at least one camera.
    qpos: the positions, (n, nq).
    camera: the camera's number.
    size: width and height in pixels.

  Returns:
    The frames, (n, height, width, 3), float32 in [0, 1].
  """
  width, height = size
  mj_data = mujoco.MjData(mj_model)
  mujoco.mj_forward(mj_model, mj_data)
  active = [index == camera for index in range(mj_model.ncam)]
  frames = wp.empty((len(qpos), height, width), dtype=wp.vec3)
  m = mjw.put_model(mj_model)
  d = mjw.put_data(mj_model, mj_data, nworld=len(qpos))
  d.qpos.assign(np.asarray(qpos, np.float32))
  mjw.kinematics(m, d)
  mjw.camlight(m, d)
  context = mjw.create_render_context(
    mj_model, nworld=len(qpos), cam_res=(width, height), cam_active=active, use_shadows=True
  )
  mjw.refit_bvh(m, d, context)
  mjw.render(m, d, context)
  mjw.get_rgb(context, 0, frames)
  return np.clip(frames.numpy(), 0.0, 1.0)


def crowd(path: pathlib.Path, qpos: np.ndarray, *, spacing: float = 1.8) -> np.ndarray:
  """Renders one frame of many copies of a model with a free root, side by side on a floor.

  Args:
    path: the model's MJCF file.
    qpos: the positions of each copy, (n, nq); their roots are moved apart.
    spacing: the distance between neighbours, in metres.

  Returns:
    The frame, (480, 720, 3), float32 in [0, 1].
  """
  count = len(qpos)
  side = int(np.ceil(np.sqrt(count)))
  scene = _without_scene(mujoco.MjSpec.from_file(str(path)), 0)  # for its options
  scene.memory = 2**28
  for body in scene.worldbody.bodies:
    scene.delete(body)
  scene.worldbody.add_geom(
    type=mujoco.mjtGeom.mjGEOM_PLANE, size=[200, 200, 1], rgba=[0.75, 0.8, 0.85, 1]
  )
  scene.worldbody.add_light(
    type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, pos=[0, 0, 9], dir=[0.3, 0.4, -1]
  )
  extent = 0.5 * spacing * side
  scene.worldbody.add_camera(
    name="crowd", pos=[0, -2.1 * extent, 1.2 * extent], xyaxes=[1, 0, 0, 0, 0.53, 0.85], fovy=36
  )
  positions = []
  for index, q in enumerate(qpos):
    body = _without_scene(mujoco.MjSpec.from_file(str(path)), index / max(count - 1, 1))
    body.memory = scene.memory  # or MuJoCo warns that they differ
    scene.attach(body, prefix=f"{index}_", frame=scene.worldbody.add_frame())
    offset = spacing * (np.array([index % side, index // side]) - 0.5 * (side - 1))
    positions.append(np.concatenate([q[:2] + offset, q[2:]]))
  model = scene.compile()
  return render(model, np.concatenate(positions)[None], camera=0, size=(720, 480))[0]


def _without_scene(spec: mujoco.MjSpec, hue: float) -> mujoco.MjSpec:
  """Leaves the bodies only, and gives them a colour."""
  for element in [*spec.cameras, *spec.lights, *spec.keys]:
    spec.delete(element)
  for geom in list(spec.geoms):
    if geom.type == mujoco.mjtGeom.mjGEOM_PLANE:
      spec.delete(geom)
    else:
      geom.rgba = [0.35 + 0.55 * hue, 0.55, 0.9 - 0.55 * hue, 1]
  return spec
