"""Small models that together give an effect to every leaf of a Model, many of them from zero."""

# Joints, springs, tendons, equalities, cameras and sensors, without contacts. Stiffness, damping,
# armature, friction loss, spring yields and the like are zero at first.
MECHANISM = """
<mujoco>
  <compiler angle="radian"/>
  <option timestep="0.002" gravity="0 0 -9.81" magnetic="0 -0.5 0"/>
  <default>
    <geom contype="0" conaffinity="0"/>
    <equality solref="0.2 1"/>
    <joint solreflimit="0.1 1"/>
    <tendon solreflimit="0.1 1"/>
  </default>
  <worldbody>
    <light name="lamp" mode="targetbodycom" target="plate" pos="0 0 3"/>
    <light name="head" mode="fixed" pos="1 0 3" dir="0 0.3 -1"/>
    <camera name="far" mode="targetbody" target="plate" pos="3 0 1"/>
    <camera name="fixed" pos="0 -2 1" xyaxes="1 0 0 0 0.2 1"/>
    <site name="anchor" pos="0 0 2"/>
    <body name="arm" pos="0 0 1.5" gravcomp="0.3">
      <joint name="shoulder" axis="0 1 0" range="-0.2 0.05" limited="true" margin="0.01"
        actuatorfrcrange="-2 2" actuatorfrclimited="true"/>
      <geom name="upper" type="capsule" size="0.05" fromto="0 0 0 0 0 -0.5"/>
      <camera name="trackcom" mode="trackcom" pos="0.5 -1 0"/>
      <camera name="track" mode="track" pos="0.5 -1 0"/>
      <light name="trackcom" mode="trackcom" pos="0.5 -1 0.5" dir="0 1 -0.3"/>
      <light name="track" mode="track" pos="0.5 -1 0.5" dir="0 1 -0.3"/>
      <site name="middle" pos="0.08 0 -0.25"/>
      <body name="forearm" pos="0 0 -0.5">
        <joint name="elbow" type="ball" range="0 0.1" limited="true"/>
        <geom name="lower" type="capsule" size="0.04" fromto="0 0 0 0.3 0 -0.3"/>
        <geom name="drum" type="cylinder" size="0.06 0.05" euler="1.5708 0 0" mass="0.1"/>
        <site name="tip" pos="0.3 0 -0.3"/>
        <camera name="tip" pos="0.3 0 -0.3" resolution="2 1" fovy="60"/>
        <site name="side" pos="0.1 0 0"/>
      </body>
    </body>
    <body name="plate" pos="1 0 1">
      <freejoint name="plate"/>
      <geom name="plate" type="box" size="0.2 0.1 0.05"/>
      <site name="corner" pos="0.2 0.1 0.05"/>
    </body>
    <body name="bob" pos="1 0 1.6">
      <joint name="bob" type="ball"/>
      <geom name="bob" size="0.1" pos="0 0.1 -0.3"/>
    </body>
    <body name="cart" pos="-1 0 1">
      <joint name="slide" type="slide" axis="1 0 0" stiffness="5" springref="0.1"/>
      <geom name="cart" type="box" size="0.1 0.1 0.1"/>
      <body name="wheel" pos="0 0.2 0">
        <joint name="wheel" axis="0 1 0" stiffness="20" springyield="0.01"/>
        <geom name="wheel" type="cylinder" size="0.1 0.02" euler="1.5708 0 0"/>
      </body>
    </body>
    <geom name="target" size="0.3" pos="0.6 -0.4 0.3"/>
  </worldbody>
  <tendon>
    <spatial name="rope" range="0 0.5" limited="true" margin="0.01" stiffness="0.1"
      springlength="0.1 0.2">
      <site site="anchor"/><site site="middle"/><site site="tip"/>
    </spatial>
    <fixed name="gear" actuatorfrcrange="-0.5 0.5" actuatorfrclimited="true">
      <joint joint="slide" coef="1"/><joint joint="wheel" coef="0.2"/>
    </fixed>
    <spatial name="yield" stiffness="20" springyield="0.005"><site site="anchor"/>
    <site site="corner"/></spatial>
  </tendon>
  <equality>
    <connect body1="plate" body2="bob" anchor="-0.1 0 0.1"/>
    <weld name="weld" body1="cart" body2="plate" relpose="-1.9 0.05 0 1 0.05 0 0"/>
    <joint joint1="wheel" joint2="slide" polycoef="0.1 1 0 0 0"/>
    <tendon tendon1="gear" polycoef="0.1 0 0 0 0"/>
  </equality>
  <actuator>
    <motor name="motor" joint="shoulder" gear="3" ctrlrange="-0.5 0.5" ctrllimited="true"
      forcerange="-0.5 0.5"
      forcelimited="true" armature="0.01" damping="0.1"/>
    <motor name="pull" tendon="gear" gear="2"/>
    <general name="servo" joint="slide" gainprm="10" biastype="affine" biasprm="0 0 0"/>
    <general name="slow" joint="wheel" dyntype="filterexact" dynprm="0.1" gainprm="2"
      actrange="-0.1 0.1"
      actlimited="true"/>
    <motor name="late" joint="wheel" delay="0.004" nsample="4"/>
    <general name="crank" slidersite="middle" cranksite="anchor" cranklength="1.2" gainprm="1"/>
  </actuator>
  <sensor>
    <magnetometer site="tip"/><accelerometer site="tip"/><framepos objtype="site" objname="tip"/>
    <framequat objtype="site" objname="middle"/><rangefinder site="tip"/>
    <framepos objtype="camera" objname="far"/>
    <camprojection camera="fixed" site="tip"/><camprojection camera="tip" site="corner"/>
    <subtreecom body="arm"/><tendonpos tendon="rope"/>
    <jointpos joint="wheel" interval="0.005" nsample="3"/>
    <jointpos joint="slide" delay="0.003" nsample="4"/><actuatorfrc actuator="motor"/>
    <force site="tip"/>
    <jointlimitfrc joint="elbow"/><e_potential/>
  </sensor>
</mujoco>
"""

# Geoms of many kinds on a plane that is not flat, an explicit pair, and a fluid that is absent.
CONTACTS = """
<mujoco>
  <option timestep="0.002" cone="elliptic" impratio="2"/>
  <worldbody>
    <body name="terrain" pos="0 0 0.01">
      <geom name="floor" type="plane" size="5 5 0.1" solref="0.04 1" friction="0.5 0.01 0.001"/>
    </body>
    <geom name="step" type="box" size="0.3 0.3 0.1" pos="1 0 0.01"/>
    <body pos="0 0 0.105"><freejoint/><geom name="ball" size="0.1" condim="6" margin="0.01"/></body>
    <body pos="1 0 0.205"><freejoint/><geom name="box" type="box" size="0.1 0.1 0.1" condim="3"/>
    </body>
    <body pos="0 1 0.125" euler="90 0 0"><freejoint/>
      <geom name="capsule" type="capsule" size="0.1 0.2" condim="4" margin="0.02" gap="0.001"/>
      </body>
    <body pos="0 2 0.105"><freejoint/><geom name="egg" type="ellipsoid" size="0.2 0.15 0.1"
      fluidshape="ellipsoid"/></body>
    <body pos="0 -1 0.105"><freejoint/><geom name="lower" size="0.1"/></body>
    <body pos="0.005 -1 0.295"><freejoint/><geom name="upper" size="0.1"/></body>
    <body pos="0.24 -1 0.295"><freejoint/><geom name="near" size="0.1"/></body>
  </worldbody>
  <contact>
    <pair geom1="lower" geom2="upper" condim="3" margin="0.01" gap="0.001" solreffriction="0.02 1"
      friction="0.02 0.02 0.001 0.001 0.001"/>
    <pair geom1="upper" geom2="near" gap="0.001"/>
  </contact>
</mujoco>
"""

# A muscle and an actuator that adheres, whose constants `set_const` computes.
MUSCLES = """
<mujoco>
  <compiler angle="radian"/>
  <option timestep="0.002" density="1.2"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 0.1"/>
    <body pos="0 0 1"><joint name="hinge" axis="0 1 0" range="-1 1" limited="true"
      frictionloss="20"/>
      <geom type="capsule" size="0.05" fromto="0 0 0 0 0 -0.5" contype="0"/></body>
    <body name="pad" pos="1 0 0.099"><freejoint/><geom name="pad" size="0.1"/></body>
  </worldbody>
  <tendon><fixed frictionloss="20"><joint joint="hinge" coef="0.5"/></fixed></tendon>
  <actuator>
    <muscle name="muscle" joint="hinge" lengthrange="-1 1"/>
    <adhesion name="suction" body="pad" gain="2" ctrlrange="0 1"/>
  </actuator>
</mujoco>
"""
