"""Gradients of forces, energies and limits that a step reports, against differences of C MuJoCo."""

import functools

import mujoco
import numpy as np
import pytest
import warp as wp

from support import adjoint_models as models
from support.adjoint_case import SMOOTH, STIFF, Case, load, random_states, settled_states

Integrator = mujoco.mjtIntegrator

CUTS = """<mujoco><option timestep="0.004"><flag contact="disable"/></option><worldbody>
  <body name="a" pos="0 0 1" quat=".9 .1 .2 .3">
    <joint type="ball" pos=".1 .05 -.02" damping="3" armature=".1"/>
    <geom type="box" size=".1 .2 .3" pos=".05 .1 0"/>
    <site name="s0" pos=".1 .05 .02" euler="10 20 30"/>
    <body name="b" pos=".2 0 .3">
      <joint type="slide" axis="0 .3 1" stiffness="3 1 2" damping="1 2 3"/>
      <geom type="capsule" size=".05 .2" euler="30 0 0"/>
      <site name="s1" pos=".02 .1 .2" euler="0 20 30"/>
      <body name="c" pos="-.2 .1 .3" gravcomp=".4"><joint axis="0 .3 1" damping="2"/>
        <geom type="box" size=".05 .1 .2"/><site name="s2" pos=".1 0 .1" euler="50 20 30"/>
      </body></body></body>
  <body pos="1 2 1"><freejoint/><geom type="box" size=".1 .2 .3" pos=".1 0 0"/></body>
  </worldbody><sensor><force site="s0"/><torque site="s0"/><force site="s1"/><torque site="s1"/>
    <torque site="s2" cutoff=".01"/><force site="s2"/></sensor></mujoco>"""


def check(text, states, *, tolerance, outputs=("sensordata",), wrt=(), **options):
  m = load(text, **{k: v for k, v in options.items() if k != "integrate"})
  integrate = options.get("integrate", True)
  case = Case(m, states(m), integrate=integrate, wrt=wrt, outputs=outputs)
  case.adjoint.launch()
  case.check(tolerance)


def test_force_and_torque_sensors_have_the_gradient_of_differences():
  wrt = ("body_mass", "body_inertia", "body_ipos", "opt.gravity", "site_pos", "site_quat")
  check(CUTS, random_states, tolerance=SMOOTH, wrt=wrt)


def test_internal_and_external_forces_and_accelerations_of_bodies_have_the_gradient():
  outputs = ("cacc", "cfrc_int", "cfrc_ext")
  check(CUTS, random_states, tolerance=SMOOTH, outputs=outputs, integrate=False)


def test_centres_and_velocities_of_subtrees_have_the_gradient_together():
  outputs = ("subtree_com", "cvel", "subtree_linvel", "subtree_angmom")
  check(CUTS, random_states, tolerance=SMOOTH, outputs=outputs, integrate=False)


@pytest.mark.parametrize("text", [models.SMOOTH, models.CONSTRAINED], ids=["smooth", "rows"])
@pytest.mark.parametrize("integrate", [True, False])
def test_the_acceleration_without_constraints_has_the_gradient(text, integrate):
  outputs = ("qacc_smooth", "qfrc_smooth", "qfrc_bias")
  wrt = ("body_mass", "body_inertia", "dof_armature", "opt.gravity")
  wrt += ("tendon_armature",) if "<tendon>" in text else ()
  check(text, random_states, tolerance=STIFF, outputs=outputs, wrt=wrt, integrate=integrate)


def test_force_sensors_feel_connects_and_welds():
  sites = '<force site="sa"/><torque site="sa"/><force site="sf"/><torque site="sc"/>'
  sites += '<torque site="sb"/><accelerometer site="sc"/>'
  wrt = ("body_mass", "eq_solref", "dof_invweight0", "eq_data")
  text = models.with_sensors(models.CONSTRAINED, sites)
  check(text, random_states, tolerance=STIFF, wrt=wrt)
  # the centre of mass that this is about depends on the masses of the whole tree: not that of one
  check(text, random_states, tolerance=STIFF, outputs=("cfrc_ext",), wrt=wrt[1:])


CONES = [mujoco.mjtCone.mjCONE_PYRAMIDAL, mujoco.mjtCone.mjCONE_ELLIPTIC]


@pytest.mark.parametrize("cone", CONES)
def test_touch_and_force_sensors_feel_contacts(cone):
  text = models.touching_bodies()
  sites = [f'<touch site="{n}"/><force site="{n}"/><torque site="{n}"/>' for n in "abcde"]
  wrt = ("body_inertia", "geom_friction", "geom_solref", "geom_size", "geom_pos")
  outputs = ("sensordata", "cfrc_ext")
  text = models.with_sensors(text, "".join(sites))
  check(text, settled_states, tolerance=STIFF, outputs=outputs, wrt=wrt, cone=int(cone))


@pytest.mark.parametrize("cone", CONES)
def test_contact_sensors_have_the_gradient_of_differences(cone):
  kinds = (
    'subtree1="{}" num="4" data="found dist pos normal tangent" reduce="mindist"',
    'geom2="floor" body1="{}" num="4" data="linvel angvel" reduce="mindist"',
    'body2="{}" num="4" data="force pos linvel angvel" reduce="mindist"',
    'body1="{}" num="4" data="force torque dist" reduce="maxforce"',
    'subtree1="{}" data="found force torque dist pos normal" reduce="netforce"',
  )
  if wp.get_device().is_cpu:  # on a GPU contacts come in any order
    kinds += ('site="{}" num="6" data="found force pos"',)
  sensors = "".join(f"<contact {kind.format(n)}/>" for kind in kinds for n in "abce")
  text = models.touching_bodies().replace('<geom type="plane"', '<geom name="floor" type="plane"')
  text = models.with_sensors(text, sensors)
  wrt = ("body_inertia", "geom_friction", "geom_solref", "geom_size", "geom_pos")
  check(text, settled_states, tolerance=STIFF, wrt=wrt, cone=int(cone))


@pytest.mark.parametrize(("sensor", "known"), [('body1="a"', False), ('body2="c"', True)])
def test_contacts_that_come_in_any_order_are_read_by_a_sensor_if_there_is_one_alone(sensor, known):
  text = models.touching_bodies().replace('<geom type="plane"', '<geom name="floor" type="plane"')
  sensors = f'<contact {sensor} data="force"/><contact {sensor} data="found" num="3"/>'
  if known:
    sensors = f'<contact geom1="floor" {sensor} data="force"/>'
  m = load(models.with_sensors(text, sensors))
  case = Case(m, settled_states(m), outputs=("sensordata",))
  case.adjoint.stage.collector.sensors._matched.any_order = True  # as on a GPU
  case.adjoint.launch()
  assert np.all(np.isfinite(case.adjoint.gradients["qvel"].numpy())) == known


@pytest.mark.parametrize("outputs", [("cfrc_int",), ("sensordata",)])
def test_each_output_of_rows_has_its_gradient_without_the_others(outputs):
  """Contacts and a limit in one model, of which one output sees the former, one the latter."""
  text = models.CONTACTS.format(condim=3).replace(
    '<joint axis="0 1 0" damping=".2"/>',
    '<joint name="j" axis="0 1 0" damping=".2" range="10 50" limited="true"/>',
  )
  assert 'name="j"' in text
  text = models.with_sensors(text, '<jointlimitfrc joint="j"/>')
  # of a free body that is what is left of forces that cancel, stiffer than float32 can tell
  check(text, settled_states, tolerance=10 * STIFF, outputs=outputs)


def test_sensors_of_limits_have_the_gradient_of_differences():
  sensors = [f'<jointlimit{x} joint="{j}"/>' for x in ("pos", "vel", "frc") for j in ("ball", "h1")]
  sensors += [f'<tendonlimit{x} tendon="ft"/><tendonlimit{x} tendon="sp"/>' for x in ("pos", "frc")]
  sensors += ['<tendonlimitvel tendon="sp"/><jointlimitfrc joint="s1" cutoff=".01"/>']
  wrt = ("jnt_solref", "jnt_range", "tendon_range", "jnt_margin")
  text = models.with_sensors(models.CONSTRAINED, "".join(sensors))
  check(text, lambda m: random_states(m, count=4), tolerance=STIFF, wrt=wrt)


def test_energies_have_the_gradient_of_differences():
  text = models.with_sensors(models.ACTUATED, "<e_potential/><e_kinetic/>")
  text = text.replace('<flag contact="disable"/>', '<flag energy="enable" contact="disable"/>')
  text = text.replace('type="free"', 'type="free" stiffness="3 .1 .2"')
  wrt = ("body_mass", "body_inertia", "jnt_stiffness", "tendon_stiffness", "tendon_lengthspring")
  wrt += ("dof_armature", "tendon_armature", "qpos_spring", "opt.gravity")
  outputs = ("sensordata", "energy")
  check(text, random_states, tolerance=SMOOTH, outputs=outputs, wrt=wrt)


def forces_at(*sites: str) -> str:
  return "".join(f'<force site="{s}"/><torque site="{s}"/>' for s in sites)


@pytest.mark.parametrize("integrator", [Integrator.mjINT_EULER, Integrator.mjINT_IMPLICITFAST])
def test_force_sensors_feel_springs_and_drives_of_spatial_tendons(integrator):
  text = models.with_sensors(models.ACTUATED, forces_at("sa", "sb", "sc", "sf"))
  wrt = ("body_mass", "site_pos", "tendon_stiffness", "tendon_damping", "tendon_armature")
  wrt += ("tendon_lengthspring", "actuator_gear", "actuator_gainprm")
  options = dict(tolerance=SMOOTH, integrator=int(integrator))
  check(text, random_states, wrt=wrt, **options)
  outputs = ("cfrc_int", "cfrc_ext", "qfrc_bias", "qfrc_passive", "actuator_force")
  check(text, random_states, outputs=outputs, wrt=wrt[1:], **options)


def test_force_sensors_feel_tendons_that_wrap_around_geoms():
  text = models.with_sensors(models.WRAPPED, forces_at("up", "e0"))
  states = functools.partial(random_states, spread=0.1)
  check(text, states, tolerance=SMOOTH, wrt=("geom_size", "geom_pos", "site_pos"))


def test_force_sensors_feel_limits_friction_and_ties_of_spatial_tendons():
  rope = '<spatial name="rope" frictionloss=".3"><site site="w0"/><site site="sb"/></spatial>'
  tie = '<tendon tendon1="rope" tendon2="sp" polycoef=".02 .5 .3 .1 .05"/>'
  text = models.CONSTRAINED.replace("</tendon>", f"{rope}</tendon>", 1)
  text = text.replace("</equality>", f"{tie}</equality>")
  wrt = ("tendon_frictionloss", "tendon_range", "tendon_solref_lim", "eq_data", "site_pos")
  m = load(models.with_sensors(text, forces_at("sa", "sb", "sc")))
  case = Case(m, random_states(m), wrt=wrt, outputs=("sensordata",))
  case.adjoint.launch()
  case.check(STIFF, nonzero=("tendon_frictionloss",))  # raised from zero it adds a constraint


APART = """<mujoco><worldbody><geom name="floor" type="plane" size="5 5 1" euler="3 4 0"/>
  <body pos="0 0 1"><freejoint/><geom name="ball" type="sphere" size="0.2"/></body>
  <body pos="1 0 1" euler="30 20 0"><freejoint/>
    <geom name="rod" type="capsule" size="0.1 0.3"/></body>
  <body pos="0 1 1" euler="0 40 10"><freejoint/>
    <geom name="box" type="box" size="0.2 0.3 0.1"/></body>
  <body name="egg" pos="0 2 1" euler="5 60 0"><freejoint/>
    <geom name="egg" type="ellipsoid" size="0.2 0.3 0.1"/></body>
  <body name="cans" pos="1 2 1" euler="5 60 20"><freejoint/>
    <geom name="can" type="cylinder" size="0.2 0.3"/>
    <geom name="cube" type="box" size="0.2 0.3 0.1" pos="0 1 0"/></body>
  </worldbody></mujoco>"""


def test_distances_normals_and_segments_between_geoms_have_the_gradient_of_differences():
  pairs = (("floor", "ball"), ("rod", "ball"), ("rod", "box"), ("box", "can"), ("egg", "ball"))
  pairs += (("box", "cube"), ("can", "floor"))
  objects = [f'geom1="{a}" geom2="{b}" cutoff="10"' for a, b in pairs]
  objects += ['body1="cans" body2="egg" cutoff="10"', 'geom1="egg" geom2="rod" cutoff="0.5"']
  sensors = [f"<{kind} {o}/>" for kind in ("distance", "normal", "fromto") for o in objects]
  text = models.with_sensors(APART, "".join(sensors))
  # what is nearest on an ellipsoid C finds to some digits only, so differences have fewer
  check(text, lambda m: random_states(m, spread=0.2), tolerance=STIFF, wrt=("geom_size",))


def test_rangefinders_have_the_gradient_of_differences():
  wedge = '<asset><mesh name="wedge" vertex="0 0 0  .5 0 0  0 .5 0  0 0 .5  .5 .5 .2"/></asset>'
  places = [(0, 0), (1, 0), (0, 1), (0, 2), (1, 2), (0, 3), (1.2, 3.2), (0.5, 0.5), (1.05, 2.05)]
  sites = [
    f'<site name="s{i}" pos="{x} {y} 0" euler="{175 + 3 * i} {4 * i} 0"/>'
    for i, (x, y) in enumerate(places)
  ]
  bodies = '<body pos="1 3 1" euler="5 60 20"><freejoint/><geom type="mesh" mesh="wedge"/></body>'
  bodies += f'<body pos="0 0 2"><joint type="ball"/><geom size=".1"/>{"".join(sites)}</body>'
  text = APART.replace("<worldbody>", f"{wedge}<worldbody>")
  text = text.replace("</worldbody>", f"{bodies}</worldbody>")
  sensors = "".join(f'<rangefinder site="s{i}"/>' for i in range(len(places)))
  text = models.with_sensors(text, sensors + '<rangefinder site="s1" cutoff=".2"/>')
  wrt = ("geom_size", "site_pos", "site_quat", "geom_pos", "geom_quat", "body_pos")
  check(text, lambda m: random_states(m, count=4, spread=0.1), tolerance=SMOOTH, wrt=wrt)


def test_sensors_of_the_frames_of_cameras_have_the_gradient_of_differences():
  modes = dict(fixed="", track="", trackcom="", targetbody='target="egg"')
  modes["targetbodycom"] = 'target="cans"'
  cameras = "".join(
    f'<camera name="{mode}" pos=".1 .2 0" euler="20 -10 30" mode="{mode}" {more}/>'
    for mode, more in modes.items()
  )
  body = f'<body name="drone" pos="-.5 -1 2.5"><freejoint/><geom size=".1" pos=".1 0 0"/>{cameras}'
  text = APART.replace("<worldbody>", f"<worldbody>{body}</body>")
  kinds = "pos quat xaxis zaxis linvel angvel linacc angacc".split()
  sensors = "".join(
    f'<frame{kind} objtype="camera" objname="{c}"/>' for kind in kinds for c in modes
  )
  sensors += "".join(
    f'<frame{kind} objtype="body" objname="egg" reftype="camera" refname="{c}"/>'
    for kind in kinds[:6]
    for c in modes
  )
  wrt = ("cam_pos", "cam_quat", "cam_pos0", "cam_poscom0", "cam_mat0", "body_pos")
  states = functools.partial(random_states, spread=0.2)
  check(models.with_sensors(text, sensors), states, tolerance=SMOOTH, wrt=wrt)


def test_projections_on_cameras_have_the_gradient_of_differences():
  cameras = '<camera name="far" pos="0 -4 1" xyaxes="1 0 .1 0 .2 1" resolution="64 48" fovy="50"/>'
  cameras += '<camera name="lens" pos="4 1 1" xyaxes="0 1 0 -.2 0 1" resolution="32 20"'
  cameras += ' sensorsize=".03 .02" focal=".03 .04"/>'
  cameras += '<camera name="aimed" pos="3 -2 1" mode="targetbody" target="egg" resolution="9 8"/>'
  text = APART.replace("<worldbody>", f"<worldbody>{cameras}")
  seen = '<site name="seen" pos=".1 .2 .3"/>'
  text = text.replace(
    '<body name="egg"',
    f'<body pos="0 0 2"><freejoint/><geom size=".1"/>{seen}'
    '<camera name="moved" pos=".1 0 0" euler="0 70 30" resolution="9 9"/></body><body name="egg"',
  )
  text = text.replace('<geom name="can"', '<site name="can" pos=".1 0 .4"/><geom name="can"')
  pairs = (("seen", "far"), ("seen", "lens"), ("can", "moved"), ("can", "far"))
  sensors = "".join(f'<camprojection site="{s}" camera="{c}"/>' for s, c in pairs)
  sensors += '<camprojection site="can" camera="far" cutoff="5"/>'
  sensors += '<camprojection site="can" camera="aimed"/>'
  wrt = ("site_pos", "body_pos", "body_quat", "cam_fovy", "cam_intrinsic")
  check(
    models.with_sensors(text, sensors),
    lambda m: random_states(m, spread=0.2),
    tolerance=SMOOTH,
    wrt=wrt,
  )


ALL_OF_A_RAY = 'data="dist dir origin point normal depth"'


def test_what_cameras_and_sites_see_along_rays_has_the_gradient_of_differences():
  fixed = '<camera name="wide" pos="0 -4 3" xyaxes="1 0 .1 0 .5 1" resolution="4 3" fovy="50"/>'
  fixed += '<camera name="lens" pos="3 1 1.4" xyaxes="0 1 0 -.2 0 1" resolution="9 5"'
  fixed += ' sensorsize=".03 .02" focal=".03 .02" principal=".001 .002"/>'
  fixed += '<camera name="flat" pos=".5 1 4" euler="5 3 0" resolution="6 7" fovy="3"'
  fixed += ' projection="orthographic"/>'
  fixed += '<camera name="aimed" pos="3 -2 3" mode="targetbody" target="egg" resolution="2 3"/>'
  moved = '<body name="drone" pos="-.5 -1 2.5"><freejoint/><geom size=".1" pos=".1 0 0"/>'
  moved += (
    '<site name="under" euler="160 10 0"/><camera name="own" euler="20 30 0" resolution="3 3"/>'
  )
  moved += "".join(
    f'<camera name="{mode}" euler="20 -10 30" mode="{mode}" {more} resolution="3 2"/>'
    for mode, more in dict(track="", trackcom="", targetbodycom='target="cans"').items()
  )
  text = APART.replace("<worldbody>", f"<worldbody>{fixed}{moved}</body>")
  names = ("wide", "lens", "flat", "aimed", "own", "track", "trackcom", "targetbodycom")
  sensors = "".join(f'<rangefinder camera="{n}" {ALL_OF_A_RAY}/>' for n in names)
  sensors += f'<rangefinder site="under" {ALL_OF_A_RAY}/><rangefinder site="under" data="depth"/>'
  sensors += '<rangefinder camera="wide" data="dist point" cutoff="3"/>'
  wrt = ("cam_pos", "cam_quat", "cam_fovy", "cam_intrinsic", "geom_size", "geom_pos", "site_quat")
  states = functools.partial(random_states, spread=0.1)
  # where a ray meets a curved surface at a slant, its point and normal move faster than the geom
  check(models.with_sensors(text, sensors), states, tolerance=STIFF, wrt=wrt)
